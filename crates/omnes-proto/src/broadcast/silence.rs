//! Ranks that do not answer: ranks that are gone, and ranks that long packets do not reach, as on
//! channels.
//!
//! A rank that long packets do not reach, but that has received some short packet, keeps reporting
//! its gaps. Its reports of the first packet that it lacks distinguish it from a rank without
//! buffers; the number of failed repairs of that packet, and their duration, from a rank whose link
//! loses packets by chance. A rank that has received nothing may not report at all, and is
//! distinguished from a failed one by a sign of life.

use super::stream::Stream;
use super::{Broadcast, Common};
use crate::limits::{QUIET_SHARE, SHORT_BYTES_MAX};
use omnes_wire::{Instant, Rank, Seq};
use std::collections::BTreeSet;

/// Suspected fault of a rank.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Suspicion {
    /// The rank has owed an answer for too long.
    Silent(Rank),
    /// The rank has owed an answer to long packets for half as long: it is to be asked for a sign
    /// of life.
    Quiet(Rank),
    /// Long packets do not reach the rank, though it is alive.
    MtuBlackHole(Rank),
}

impl Broadcast {
    /// Returns the next suspected rank.
    pub(crate) fn poll_suspicion(&mut self) -> Option<Suspicion> {
        self.suspicions.pop_first()
    }

    /// Judges the ranks that owe answers in one of this rank's streams by their silence.
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

    /// Judges a rank by the packets that it reports as missing in a stream.
    pub(super) fn judge_report(&mut self, now: Instant, at: usize, rank: Rank) {
        let stream = &mut self.streams[at];
        let limit = self.common.config.peer_timeout;
        let lacks = stream.collector.lacks_after_repairs(now, rank, limit);
        if lacks.is_some_and(|seq| stream.is_long(&self.common, seq)) {
            note_mtu_black_hole(&mut self.suspicions, rank);
        }
    }

    /// Answers that `rank` owes are owed only from now on.
    pub(crate) fn forgive_silence(&mut self, now: Instant, rank: Rank) {
        self.streams.iter_mut().for_each(|(_, it)| it.collector.forgive_silence(now, rank));
    }

    /// `rank` has answered a liveness probe.
    pub(crate) fn on_sign_of_life(&mut self, rank: Rank) {
        self.streams.iter_mut().for_each(|(_, stream)| stream.collector.on_sign_of_life(rank));
    }
}

/// Long packets do not reach `rank`. Only one of several such ranks is reported: operations in
/// progress end with an error that names it, so the others need not be declared failed.
fn note_mtu_black_hole(suspicions: &mut BTreeSet<Suspicion>, rank: Rank) {
    if !suspicions.iter().any(|known| matches!(known, Suspicion::MtuBlackHole(_))) {
        suspicions.insert(Suspicion::MtuBlackHole(rank));
    }
}

impl Stream {
    /// True if packet `seq`, which this rank has, is too long for some networks to forward.
    fn is_long(&mut self, common: &Common, seq: Seq) -> bool {
        let bytes = match (&mut self.sending, &self.incoming) {
            (Some(sending), _) => sending.data_bytes(&common.config, seq),
            (None, Some(incoming)) => incoming.stashed(seq).map(|it| it.packet.bytes as u32),
            (None, None) => None,
        };
        bytes.is_some_and(|bytes| bytes > SHORT_BYTES_MAX)
    }
}
