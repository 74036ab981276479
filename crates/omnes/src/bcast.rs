//! Broadcast over channels, down a tree.
//!
//! Source: binomial with store and forward is the "Original" of seed 001 [BC-R25]; a rank that
//! forwards while it receives does PM's immediate sending [PM-R7] from rank to rank. Cost: one
//! message per rank but the root; with forwarding under way the depth of the tree costs one
//! [`PIPELINE_BYTES`] piece per level instead of the whole message.

use crate::communicator::{Bytes, Communicator, Purpose};
use crate::error::Error;
use omnes_net::Operation;
use omnes_topo::{TopoError, Tree};
use omnes_wire::Rank;
use std::fmt;
use std::str::FromStr;

/// Bytes that are forwarded at a time while a message comes in.
pub const PIPELINE_BYTES: usize = 128 << 10;

/// Messages from this size on go down a chain by default.
const CHAIN_BYTES: usize = 1 << 20;

/// When a rank passes on what it receives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Forwarding {
    /// When it has all of it.
    Store,
    /// While the rest still comes in.
    Pipelined,
}

/// A broadcast algorithm: `binomial`, `chain`, `flat` or `knomial=4`, with `:store` for passing
/// on whole messages only; `binomial:store` is the "Original" of seed 001 [BC-R25].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bcast {
    /// Who sends to whom.
    pub tree: Tree,
    /// When.
    pub forwarding: Forwarding,
}

impl Bcast {
    /// A tree down which large messages are passed on while they come in.
    pub fn new(tree: Tree) -> Self {
        Self { tree, forwarding: Forwarding::Pipelined }
    }
}

impl fmt::Display for Bcast {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let suffix = match self.forwarding {
            Forwarding::Store => ":store",
            Forwarding::Pipelined => "",
        };
        write!(formatter, "{}{suffix}", self.tree)
    }
}

impl FromStr for Bcast {
    type Err = TopoError;

    fn from_str(text: &str) -> Result<Self, TopoError> {
        if let Some(tree) = text.strip_suffix(":store") {
            return Ok(Self { tree: tree.parse()?, forwarding: Forwarding::Store });
        }
        if let Some(tree) = text.strip_suffix(":pipelined") {
            return Ok(Self { tree: tree.parse()?, forwarding: Forwarding::Pipelined });
        }
        Ok(Self::new(text.parse()?))
    }
}

impl Communicator {
    /// Sends the root's bytes to all ranks: afterwards `buffer` is the same everywhere. Its length
    /// must be the same on all ranks.
    ///
    /// # Errors
    /// [`Error::RankOutOfRange`] for a root that does not exist, [`Error::Truncated`] if the root
    /// sent more than fits, [`Error::Disagreement`] if it sent less, [`Error::PeerFailed`] if a
    /// member has failed.
    pub fn bcast(&self, root: u32, buffer: &mut [u8]) -> Result<(), Error> {
        let algorithm = self.job().config.bcast;
        let bytes = buffer.len();
        self.bcast_with(root, buffer, algorithm.unwrap_or_else(|| self.usual_bcast(bytes)))
    }

    /// A chain loads every link once, which counts for large messages; where ranks share cores,
    /// all copies are made by the same cores, and a shallow tree wakes fewer ranks in turn.
    fn usual_bcast(&self, bytes: usize) -> Bcast {
        let is_large = bytes >= CHAIN_BYTES;
        match (is_large, self.job().engine.is_crowded()) {
            (false, _) => Bcast::new(Tree::Binomial),
            (true, false) => Bcast::new(Tree::Chain),
            (true, true) => Bcast::new(Tree::Binomial),
        }
    }

    /// As [`Self::bcast`], by an algorithm of choice, the same on all ranks.
    ///
    /// # Errors
    /// As [`Self::bcast`].
    pub fn bcast_with(&self, root: u32, buffer: &mut [u8], algorithm: Bcast) -> Result<(), Error> {
        self.check_rank(root)?;
        let (me, size) = (Rank(self.rank()), self.size());
        let tree = algorithm.tree;
        let checked = "rank and root are below the size";
        let parent = tree.parent(me, Rank(root), size).expect(checked);
        let children = tree.children(me, Rank(root), size).expect(checked);
        let data = Bytes::of_mut(buffer);
        // Of a short message there is no part to pass on before the whole.
        let is_whole = algorithm.forwarding == Forwarding::Store || data.length <= PIPELINE_BYTES;
        match parent {
            None => self.send_down(&children, data),
            Some(parent) if is_whole || children.is_empty() => {
                self.receive_whole(parent, data)?;
                self.send_down(&children, data)
            }
            Some(parent) => self.forward(parent, &children, data),
        }
    }

    fn receive_whole(&self, parent: Rank, data: Bytes) -> Result<(), Error> {
        // SAFETY: the caller's buffer outlives the wait, which ends or releases the operation.
        let receive = unsafe { self.start_receive(parent.0, Purpose::Bcast, data)? };
        self.check_length(self.wait_for(receive)?.bytes, data)
    }

    fn check_length(&self, bytes: u64, data: Bytes) -> Result<(), Error> {
        if bytes == data.length as u64 {
            Ok(())
        } else {
            Err(Error::Disagreement { what: "the length of a broadcast" })
        }
    }

    fn send_down(&self, children: &[Rank], data: Bytes) -> Result<(), Error> {
        let (sends, started) = self.start_sends(children, data, data.length);
        let waited = self.wait_for_all(&sends);
        started.and(waited)
    }

    /// Starts a message to each child; those that were started, also after an error.
    fn start_sends(
        &self,
        children: &[Rank],
        data: Bytes,
        available: usize,
    ) -> (Vec<Operation>, Result<(), Error>) {
        let mut sends = Vec::with_capacity(children.len());
        for child in children {
            // SAFETY: both callers wait for all that were started before the buffer is given
            // back, and send only bytes that do not change any more.
            match unsafe { self.start_send(child.0, Purpose::Bcast, data, available) } {
                Ok(send) => sends.extend(send),
                Err(error) => return (sends, Err(error)),
            }
        }
        (sends, Ok(()))
    }

    /// Receives from the parent and sends on what is there.
    fn forward(&self, parent: Rank, children: &[Rank], data: Bytes) -> Result<(), Error> {
        // SAFETY: waited for below on every path.
        let receive = unsafe { self.start_receive(parent.0, Purpose::Bcast, data)? };
        let (sends, started) = self.start_sends(children, data, 0);
        let passed = started.and_then(|()| self.pass_on(receive, &sends, data.length));
        let received = self.wait_for(receive);
        let completion = match (passed, received) {
            (Ok(()), Ok(completion)) => completion,
            (passed, received) => {
                // What never came will never be available: the messages cannot end by themselves.
                for send in &sends {
                    self.job().engine.release(*send);
                }
                return Err(passed.err().or(received.err()).expect("one of them is an error"));
            }
        };
        self.check_length(completion.bytes, data).and(self.wait_for_all(&sends))
    }

    fn pass_on(&self, receive: Operation, sends: &[Operation], total: usize) -> Result<(), Error> {
        let engine = &self.job().engine;
        let mut available = 0;
        while available < total {
            let wanted = (available + PIPELINE_BYTES).min(total) as u64;
            let concerns = |gone| self.breaks_collective(gone);
            let bytes = engine.wait_for_bytes(receive, wanted, total as u64, concerns);
            available = bytes.map_err(|error| self.error(error))? as usize;
            engine.extend(sends, available as u64);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn algorithms_are_written_as_they_are_read() {
        for text in ["binomial", "binomial:store", "chain", "chain:store", "knomial=4"] {
            assert_eq!(text.parse::<Bcast>().unwrap().to_string(), text);
        }
        assert!("tree".parse::<Bcast>().is_err());
        assert_eq!("chain:pipelined".parse::<Bcast>().unwrap().to_string(), "chain");
    }
}
