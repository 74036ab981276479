//! Receives that are posted once a probe has found their message.

use super::{Node, World};
use crate::rig::ledger::Operation;
use omnes_proto::channel::Pattern;
use omnes_wire::Rank;
use std::collections::BTreeMap;

/// See the module header.
#[derive(Default)]
pub(crate) struct Probes {
    /// Index of the channel and the pattern sought there.
    sought: Vec<(usize, Pattern)>,
    /// Sender, tag and length of each message found, by its receive.
    found: BTreeMap<Operation, (Rank, u32, u64)>,
}

impl Probes {
    pub(crate) fn add(&mut self, channel: usize, pattern: Pattern) {
        self.sought.push((channel, pattern));
    }

    pub(crate) fn seek_no_more(&mut self) {
        self.sought.clear();
    }

    /// A receive has ended; an error if its message is not the one that the probe found.
    pub(super) fn on_received(
        &mut self,
        receive: Operation,
        got: (Rank, u32, u64),
    ) -> Result<(), String> {
        match self.found.remove(&receive) {
            Some(found) if found != got => Err(format!("a probe has found {found:?}, not {got:?}")),
            _ => Ok(()),
        }
    }
}

impl Node {
    /// Posts a receive for one message that is sought and has arrived, or begins to seek one that
    /// has not; false if nothing has changed. This may produce events, which are handled first.
    pub(super) fn probe(&mut self, world: &mut World) -> bool {
        let mut is_new = false;
        let mut sought = std::mem::take(&mut self.probes.sought);
        sought.retain(|(channel, pattern)| {
            let there = self.endpoint.channel_mut(*channel);
            if is_new || there.is_seeking(pattern) && there.probe(pattern).is_none() {
                return true;
            }
            is_new = true;
            let Some(found) = there.probe(pattern) else {
                // On an error no rank can send the message any more.
                return there.seek(world.now, pattern).is_ok();
            };
            let (from, tag, bytes) = found;
            let exact = Pattern { source: Some(from), tag: Some(tag), ..*pattern };
            let receive = self.receive(world, *channel, exact, bytes);
            self.probes.found.insert(receive, found);
            false
        });
        self.probes.sought = sought;
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn received_message_must_match_the_probed_one() {
        let (receive, found) = (Operation(3), (Rank(1), 7, 20));
        for (got, is_right) in [(found, true), ((Rank(1), 7, 21), false), ((Rank(2), 7, 20), false)]
        {
            let mut probes = Probes::default();
            probes.found.insert(receive, found);
            assert_eq!(probes.on_received(receive, got).is_ok(), is_right);
        }
    }
}
