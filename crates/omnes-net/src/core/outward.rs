//! Packets going out: lined up into trains for the peers and the group, and given to the sockets.

use super::Core;
use crate::line::{Holding, Lent};
use omnes_proto::packet::Head;
use omnes_wire::Instant;

impl Core {
    /// Sends what may be sent, at most `lines_max` lines: between lines it pays to look for
    /// answers, which free the window and report what is lost.
    pub(super) fn transmit(&mut self, now: Instant, lines_max: usize) {
        self.has_more = false;
        for _ in 0..lines_max {
            if !self.flush() {
                return;
            }
            self.line_up(now);
            if self.line.trains.is_empty() {
                return;
            }
        }
        self.has_more = self.flush();
    }

    fn line_up(&mut self, now: Instant) {
        self.line.clear();
        while self.line.has_room() {
            let head = &mut self.line.heads[self.line.used];
            let Some(transmit) = self.endpoint.poll_transmit(now, head) else { break };
            let channel = transmit.channel;
            let lent = transmit.segment.map(|segment| Lent {
                data: self.memory.gather(channel, segment),
                holding: Holding { channel, source: segment.source },
            });
            // SAFETY: `gather` gives memory that is valid for reading.
            let lent = unsafe { inline(head, lent) };
            self.line.push(self.links.route(transmit.to), lent);
        }
    }

    /// Sends what is lined up; false if the socket is full.
    fn flush(&mut self) -> bool {
        let line = &mut self.line;
        line.sent += self.links.send(&line.trains[line.sent..], &mut line.parts, &mut line.batch);
        line.sent == line.trains.len()
    }
}

/// Puts a few bytes of data behind their head, as one part is sent faster than two.
///
/// # Safety
/// The data must be valid for reading.
unsafe fn inline(head: &mut Head, lent: Option<Lent>) -> Option<Lent> {
    let Lent { data, holding } = lent?;
    // SAFETY: promised by the caller.
    let bytes = unsafe { std::slice::from_raw_parts(data.iov_base.cast::<u8>(), data.iov_len) };
    if head.try_append(bytes) { None } else { Some(Lent { data, holding }) }
}
