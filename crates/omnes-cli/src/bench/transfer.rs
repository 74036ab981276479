//! One call of each operation: the body of the timed loop.

use super::options::{Algorithm, Direction, Op};
use super::pattern::Pattern;
use anyhow::Result;
use omnes::{
    BcastAlgorithm, Communicator, ElementType, MultiSend, ReduceAlgorithm, ReduceOp, Source, Tag,
};
use std::hint::black_box;
use std::time::Duration;

/// Tag of the measured messages.
const DATA: u32 = 1;
/// Tag of the message that ends a window, or answers a multi-send.
const ANSWER: u32 = 2;
/// Messages in flight in a bandwidth test.
const WINDOW_MESSAGES_MAX: usize = 64;
/// Memory for these messages; beyond it the window is smaller.
const WINDOW_BYTES_MAX: usize = 32 << 20;

/// Minimum and maximum number of back-to-back broadcasts in one iteration.
const BROADCASTS_MIN: usize = 8;
const BROADCASTS_MAX: usize = 256;

/// One operation with one size and one algorithm.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// Operation to call.
    pub op: Op,
    /// Direction in which bandwidth is measured.
    pub direction: Direction,
    /// Payload of one message.
    pub bytes: usize,
    /// Algorithm of a collective.
    pub algorithm: Algorithm,
    /// Longest delay of late ranks.
    pub skew: Duration,
    /// Number of ranks that rank 0 sends to: all others, except for a multi-send.
    pub destinations: u32,
    /// How packets to all travel, if forms are compared.
    pub multisend: Option<MultiSend>,
}

impl Point {
    /// Number of messages that one iteration sends back to back without waiting.
    pub fn window(&self) -> usize {
        match self.op {
            Op::Bandwidth => (WINDOW_BYTES_MAX / self.bytes.max(1)).clamp(1, WINDOW_MESSAGES_MAX),
            Op::Throughput => {
                (WINDOW_BYTES_MAX / self.bytes.max(1)).clamp(BROADCASTS_MIN, BROADCASTS_MAX)
            }
            _ => 1,
        }
    }

    /// Number of operations in one iteration; a ping-pong counts as two.
    pub fn operations(&self) -> u64 {
        let window = self.window() as u64;
        match (self.op, self.direction) {
            (Op::Latency, _) | (Op::Bandwidth, Direction::Both) => 2 * window,
            _ => window,
        }
    }

    /// True if both ranks of a pair send.
    fn is_both(&self) -> bool {
        self.op == Op::Bandwidth && self.direction == Direction::Both
    }

    /// True if `rank` has the data before the call; the call must deliver them to all others.
    fn is_sender(&self, rank: u32) -> bool {
        rank == 0 || self.is_both() || self.op == Op::Copy
    }
}

/// A point with its memory on this rank.
pub struct Transfer<'comm> {
    comm: &'comm Communicator,
    point: Point,
    outgoing: Vec<u8>,
    /// A window of messages, or a copy; unused by collectives.
    incoming: Vec<u8>,
}

impl<'comm> Transfer<'comm> {
    /// Allocates the memory.
    pub fn new(comm: &'comm Communicator, point: Point) -> Self {
        let op = point.op.blocking();
        let incoming = match (op, comm.rank()) {
            (Op::Latency | Op::Bandwidth, 0..=1) | (Op::Copy, _) => point.window() * point.bytes,
            (Op::Allgather | Op::Alltoall, _) => comm.size() as usize * point.bytes,
            _ => 0,
        };
        let outgoing = if op == Op::Alltoall { incoming } else { point.bytes };
        Self { comm, point, outgoing: vec![0; outgoing], incoming: vec![0; incoming] }
    }

    /// Performs the operation once (a window of messages for bandwidth). Ranks that do not take
    /// part return immediately.
    pub fn call(&mut self) -> Result<()> {
        match (self.point.op, self.comm.rank()) {
            (op, _) if op.is_nonblocking() => self.call_beside(|| ()),
            (Op::Throughput, _) => (0..self.point.window()).try_for_each(|_| self.broadcast()),
            (op, _) if op.is_broadcast() => self.broadcast(),
            (Op::Barrier, _) => self.barrier(),
            (Op::Allreduce | Op::Reduce | Op::Scan, _) => self.reduce(),
            (Op::Allgather, _) => Ok(self.comm.allgather(&self.outgoing, &mut self.incoming)?),
            (Op::Alltoall, _) => Ok(self.comm.alltoall(&self.outgoing, &mut self.incoming)?),
            (Op::Latency, 0) => self.ping(),
            (Op::Latency, 1) => self.pong(),
            (Op::Bandwidth, rank @ 0..=1) => self.stream(rank),
            (Op::Multisend, rank) if rank <= self.point.destinations => self.send_to_many(rank),
            (Op::Copy, _) => {
                black_box(&mut self.incoming).copy_from_slice(black_box(&self.outgoing));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Performs a nonblocking operation, with `meanwhile` between its start and the wait.
    pub fn call_beside(&mut self, meanwhile: impl FnOnce()) -> Result<()> {
        let Self { comm, point, outgoing, incoming } = self;
        let (element, sum) = (element_of(point.bytes), ReduceOp::Sum);
        comm.scope(|scope| {
            let request = match (point.op, point.algorithm) {
                (Op::Iallreduce, _) => scope.iallreduce_as(outgoing, element, sum),
                (Op::Ireduce, _) => scope.ireduce_as(0, outgoing, element, sum),
                (Op::Iallgather, _) => scope.iallgather(outgoing, incoming),
                (Op::Ialltoall, _) => scope.ialltoall(outgoing, incoming),
                (Op::Ibcast, Algorithm::Bcast(bcast)) => scope.ibcast_with(0, outgoing, bcast),
                (Op::Ibcast, _) => scope.ibcast(0, outgoing),
                (op, _) => unreachable!("{op:?} blocks"),
            }?;
            meanwhile();
            request.wait()
        })?;
        Ok(())
    }

    /// Performs the operation with data that are checked; returns the number of wrong bytes here.
    pub fn checked(&mut self, pattern: Pattern) -> Result<u64> {
        let (rank, size) = (self.comm.rank(), self.comm.size());
        let op = self.point.op.blocking();
        match op {
            // All other ranks contribute zeros, so the sum is rank 0's data.
            Op::Allreduce | Op::Reduce | Op::Scan if rank > 0 => self.outgoing.fill(0),
            Op::Allgather => pattern.of(rank).fill(&mut self.outgoing),
            Op::Alltoall => {
                let parts = (0..).zip(self.outgoing.chunks_mut(self.point.bytes.max(1)));
                parts.for_each(|(to, part)| pattern.of(rank * size + to).fill(part));
            }
            _ if self.point.is_sender(rank) => pattern.fill(&mut self.outgoing),
            _ => pattern.fill_wrong(&mut self.outgoing),
        }
        pattern.fill_wrong(&mut self.incoming);
        if (op, rank) == (Op::Latency, 1) {
            self.echo()?;
        } else {
            self.call()?;
        }
        Ok(match (op, rank) {
            (Op::Barrier, _) => 0,
            (Op::Allreduce | Op::Scan, _) | (Op::Reduce, 0) => pattern.count_wrong(&self.outgoing),
            (Op::Allgather | Op::Alltoall, _) => {
                let parts = (0..).zip(self.incoming.chunks(self.point.bytes.max(1)));
                let is_for_one = op == Op::Alltoall;
                let number = |from: u32| if is_for_one { from * size + rank } else { from };
                parts.map(|(from, part)| pattern.of(number(from)).count_wrong(part)).sum()
            }
            (Op::Multisend, rank) if rank <= self.point.destinations => {
                pattern.count_wrong(&self.outgoing)
            }
            (op, _) if op.is_broadcast() => pattern.count_wrong(&self.outgoing),
            (Op::Latency, 0) | (Op::Copy, _) => pattern.count_wrong(&self.incoming),
            (Op::Bandwidth, 0..=1) if rank == 1 || self.point.is_both() => {
                let messages = self.incoming.chunks(self.point.bytes.max(1));
                messages.map(|message| pattern.count_wrong(message)).sum()
            }
            _ => 0,
        })
    }

    fn broadcast(&mut self) -> Result<()> {
        match self.point.algorithm {
            Algorithm::Bcast(bcast) => self.comm.bcast_with(0, &mut self.outgoing, bcast)?,
            _ => self.comm.bcast(0, &mut self.outgoing)?,
        }
        Ok(())
    }

    /// Sums all ranks' numbers.
    fn reduce(&mut self) -> Result<()> {
        let (comm, sum) = (self.comm, ReduceOp::Sum);
        let algorithm = match self.point.algorithm {
            Algorithm::Bcast(BcastAlgorithm::Tree { tree, .. }) => {
                Some(ReduceAlgorithm::Tree(tree))
            }
            Algorithm::Reduce(reduce) => Some(reduce),
            _ => None,
        };
        let element = element_of(self.point.bytes);
        match algorithm {
            _ if self.point.op == Op::Reduce => comm.reduce_as(0, &mut self.outgoing, element, sum),
            _ if self.point.op == Op::Scan => comm.scan_as(&mut self.outgoing, element, sum),
            Some(how) => comm.allreduce_as_with(&mut self.outgoing, element, sum, how),
            None => comm.allreduce_as(&mut self.outgoing, element, sum),
        }?;
        Ok(())
    }

    /// Sends to all destinations, the last of which answers with an empty message [MS-R23].
    fn send_to_many(&mut self, rank: u32) -> Result<()> {
        let (comm, last) = (self.comm, self.point.destinations);
        match (self.point.algorithm, rank) {
            (Algorithm::Unicast, 0) => {
                (1..=last).try_for_each(|to| comm.send(to, DATA, &self.outgoing))?;
            }
            (Algorithm::Unicast, _) => {
                comm.recv(Source::Rank(0), Tag::Is(DATA), &mut self.outgoing)?;
            }
            _ => self.broadcast()?,
        }
        if rank == last {
            comm.send(0, ANSWER, &[])?;
        } else if rank == 0 {
            comm.recv(Source::Rank(last), Tag::Is(ANSWER), &mut [])?;
        }
        Ok(())
    }

    fn barrier(&self) -> Result<()> {
        match self.point.algorithm {
            Algorithm::Barrier(barrier) => self.comm.barrier_with(barrier)?,
            _ => self.comm.barrier()?,
        }
        Ok(())
    }

    fn ping(&mut self) -> Result<()> {
        self.comm.send(1, DATA, &self.outgoing)?;
        self.comm.recv(Source::Rank(1), Tag::Is(DATA), &mut self.incoming)?;
        Ok(())
    }

    fn pong(&mut self) -> Result<()> {
        self.comm.recv(Source::Rank(0), Tag::Is(DATA), &mut self.incoming)?;
        Ok(self.comm.send(0, DATA, &self.outgoing)?)
    }

    /// Returns the received data, so that rank 0 sees what rank 1 received.
    fn echo(&mut self) -> Result<()> {
        self.comm.recv(Source::Rank(0), Tag::Is(DATA), &mut self.incoming)?;
        Ok(self.comm.send(0, DATA, &self.incoming)?)
    }

    /// Streams a window of messages, all of them started before any is waited for; then rank 1
    /// answers, so rank 0 knows that they have arrived.
    fn stream(&mut self, rank: u32) -> Result<()> {
        let Self { comm, point, outgoing, incoming } = self;
        let (peer, bytes, window) = (1 - rank, point.bytes, point.window());
        let outgoing: &[u8] = outgoing;
        comm.scope(|scope| -> Result<()> {
            let mut requests = Vec::with_capacity(2 * window);
            if rank == 1 || point.is_both() {
                let mut rest: &mut [u8] = incoming;
                for _ in 0..window {
                    let (message, behind) = rest.split_at_mut(bytes);
                    rest = behind;
                    requests.push(scope.irecv(Source::Rank(peer), Tag::Is(DATA), message)?);
                }
            }
            if rank == 0 || point.is_both() {
                for _ in 0..window {
                    requests.push(scope.isend(peer, DATA, outgoing)?);
                }
            }
            for request in requests {
                request.wait()?;
            }
            Ok(())
        })?;
        if rank == 1 {
            return Ok(comm.send(0, ANSWER, &[1])?);
        }
        comm.recv(Source::Rank(1), Tag::Is(ANSWER), &mut [0])?;
        Ok(())
    }
}

/// Type of the summed numbers: eight bytes, or four or one if the size is not a multiple.
pub(super) fn element_of(bytes: usize) -> ElementType {
    match bytes {
        bytes if bytes.is_multiple_of(8) => ElementType::U64,
        bytes if bytes.is_multiple_of(4) => ElementType::U32,
        _ => ElementType::U8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    fn bandwidth(bytes: usize, direction: Direction) -> Point {
        let (algorithm, skew) = (Algorithm::Default, Duration::ZERO);
        let (destinations, multisend) = (1, None);
        Point { op: Op::Bandwidth, direction, bytes, algorithm, skew, destinations, multisend }
    }

    #[test]
    fn window_is_bounded_in_messages_and_bytes() {
        assert_eq!(bandwidth(0, Direction::Forth).window(), WINDOW_MESSAGES_MAX);
        assert_eq!(bandwidth(WINDOW_BYTES_MAX / 64, Direction::Forth).window(), 64);
        assert_eq!(bandwidth(4 << 20, Direction::Forth).window(), 8);
        assert_eq!(bandwidth(WINDOW_BYTES_MAX * 2, Direction::Forth).window(), 1);
    }

    #[test]
    fn throughput_window_holds_many_broadcasts_even_large_ones() {
        let small = Point { op: Op::Throughput, ..bandwidth(8, Direction::Forth) };
        assert_eq!((small.window(), small.operations()), (256, 256));
        assert_eq!(Point { bytes: 1 << 30, ..small }.window(), 8);
    }

    #[test]
    fn both_directions_double_the_operation_count() {
        assert_eq!(bandwidth(8, Direction::Forth).operations(), 64);
        assert_eq!(bandwidth(8, Direction::Both).operations(), 128);
    }

    #[test]
    fn receiver_sends_only_in_bidirectional_streams_and_copies() {
        let both = bandwidth(8, Direction::Both);
        assert!(both.is_sender(0) && both.is_sender(1));
        for op in Op::value_variants() {
            let point = Point { op: *op, ..both };
            let has_data = matches!(op, Op::Bandwidth | Op::Copy);
            assert_eq!((point.is_sender(0), point.is_sender(1)), (true, has_data), "{op:?}");
            assert!(
                !Point { direction: Direction::Forth, ..point }.is_sender(1) || *op == Op::Copy
            );
        }
    }
}
