//! Ranks that give no answer: those that are gone, and those that long packets do not get to, as
//! over channels.
//!
//! One of the latter that has got some short packet reports its gaps again and again. What it says
//! of the first packet that it lacks tells it from one that has no buffer; how often, and for how
//! long, that packet went there in vain, from one whose link loses packets by chance. One that has
//! got nothing at all may say nothing at all, and is told from one that has failed by a sign of
//! life.

use super::stream::Stream;
use super::{Broadcast, Common};
use crate::limits::{QUIET_SHARE, SHORT_BYTES_MAX};
use omnes_wire::{Instant, Rank, Seq};
use std::collections::BTreeSet;

/// What is wrong with a rank.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Suspicion {
    /// It has owed an answer for too long.
    Silent(Rank),
    /// It has owed an answer to long packets for half as long: it is to be asked whether it lives.
    Quiet(Rank),
    /// Long packets do not get to it, though it lives.
    MtuBlackHole(Rank),
}

impl Broadcast {
    /// The next rank that something is wrong with.
    pub(crate) fn poll_suspicion(&mut self) -> Option<Suspicion> {
        self.suspicions.pop_first()
    }

    /// Judges the ranks that owe answers in a stream of this rank's by their silence.
    pub(super) fn judge_silence(&mut self, now: Instant, at: usize) {
        let limit = self.common.config.peer_timeout;
        let stream = &mut self.streams[at];
        for silent in stream.collector.silent(now, limit / QUIET_SHARE) {
            let rank = silent.rank;
            let is_over = now.since(silent.since) >= limit;
            let is_long = stream.is_long(&self.common, silent.lacks);
            match (is_over, silent.lives) {
                (true, true) if is_long => note_mtu_black_hole(&mut self.suspicions, rank),
                (true, _) => _ = self.suspicions.insert(Suspicion::Silent(rank)),
                (false, false) if is_long => _ = self.suspicions.insert(Suspicion::Quiet(rank)),
                (false, _) => {}
            }
        }
    }

    /// Judges a rank by what it reports to be missing in a stream.
    pub(super) fn judge_report(&mut self, now: Instant, at: usize, rank: Rank) {
        let stream = &mut self.streams[at];
        let limit = self.common.config.peer_timeout;
        let lacks = stream.collector.lacks_in_vain(now, rank, limit);
        if lacks.is_some_and(|seq| stream.is_long(&self.common, seq)) {
            note_mtu_black_hole(&mut self.suspicions, rank);
        }
    }

    /// Whatever answers `rank` owes, it does since now.
    pub(crate) fn forgive_silence(&mut self, now: Instant, rank: Rank) {
        self.streams.iter_mut().for_each(|(_, it)| it.collector.forgive_silence(now, rank));
    }

    /// `rank` has answered a question whether it lives.
    pub(crate) fn on_sign_of_life(&mut self, rank: Rank) {
        self.streams.iter_mut().for_each(|(_, stream)| stream.collector.on_sign_of_life(rank));
    }
}

/// Long packets do not get to `rank`. Of several such ranks one is named: what is under way ends
/// with it, so the others need not be given up.
fn note_mtu_black_hole(suspicions: &mut BTreeSet<Suspicion>, rank: Rank) {
    if !suspicions.iter().any(|known| matches!(known, Suspicion::MtuBlackHole(_))) {
        suspicions.insert(Suspicion::MtuBlackHole(rank));
    }
}

impl Stream {
    /// True if packet `seq`, which this rank has, is one that some networks do not pass on.
    fn is_long(&mut self, common: &Common, seq: Seq) -> bool {
        let bytes = match (&mut self.sending, &self.incoming) {
            (Some(sending), _) => sending.data_bytes(&common.config, seq),
            (None, Some(incoming)) => incoming.stashed(seq).map(|it| it.packet.bytes as u32),
            (None, None) => None,
        };
        bytes.is_some_and(|bytes| bytes > SHORT_BYTES_MAX)
    }
}
