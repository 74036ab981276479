//! Nonblocking reductions and gathers: schedules of messages ([`omnes_net::Schedule`]), which the
//! engine executes, whichever thread drives it.
//!
//! Short data are combined or gathered at one rank, up a tree, and distributed down another; long
//! data go around a ring, part by part; short blocks of a reduce-scatter go directly to their
//! ranks. All messages go over channels: a multicast message has its place among all broadcasts of
//! its root, but these operations end in a different order on each rank.
//!
//! Guarantees: any number may be in progress, also interleaved with blocking collectives, if all
//! ranks start them in the same order: each has a number, which its messages carry. As with
//! blocking reductions, all ranks get the same bits, and the same again in each run. If one is
//! given up, or ends with an error that others do not learn of, it ends all collectives of the
//! communicator ([`given_up`](crate::given_up)).
//!
//! Cost for N ranks and S bytes: up a tree and down another 2 (N - 1) messages of S bytes; around a
//! ring 2 (N - 1) messages per rank, which amount to 2 S (N - 1) / N bytes; a reduce-scatter has
//! half of those, or N - 1 per rank at the same time. Each round waits for the previous one, so
//! blocking reductions of long data are faster.

mod calls;

use crate::collective::Collective;
use crate::communicator::{Bytes, Communicator, Purpose, check_length};
use crate::error::Error;
use crate::gather::{equal_parts, nothing};
use crate::given_up::goes_part_by_part;
use crate::job::COLLECTIVE;
use crate::pairwise::steps_at_once;
use crate::parts::Parts;
use crate::pending::{Begun, Pending};
use crate::point_to_point::Status;
use crate::reduce::{Blocks, ElementType, MEETING_RANK, ReduceAlgorithm, ReduceOp};
use crate::ring::{PART_BYTES_MIN, Ring};
use crate::tree_gather::FLAT_RANKS_MAX;
use crate::two_level_tree::TreeNeighbours;
use omnes_net::{Combiner, Fold, Operation, Round, Schedule, Transfer};
use omnes_topo::Tree;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Number of low bits of a tag that hold the purpose; the others hold the collective's number.
const PURPOSE_BITS: u32 = 8;
/// Longer data go around a ring: in a tree, each rank needs a buffer for the data of every child.
const TREE_BYTES_MAX: usize = 1 << 20;
/// The tree by which data that all ranks get are distributed.
const TREE_OUT: Tree = Tree::Binomial;

/// Marks the messages of a kind of collective, so that they are not taken for those of another kind
/// that a rank has called instead.
fn purpose_of(collective: Collective) -> u32 {
    let kind = match collective {
        // Only the root needs to know the lengths.
        Collective::Gatherv => Collective::Gather,
        Collective::Scatterv => Collective::Scatter,
        Collective::Allgatherv => Collective::Allgather,
        Collective::Alltoallv => Collective::Alltoall,
        kind => kind,
    };
    Purpose::Nonblocking as u32 + u32::from(kind.number())
}
const _: () = assert!(Purpose::Nonblocking as u32 + (1 << Collective::BITS) <= 1 << PURPOSE_BITS);

/// A nonblocking collective in progress.
pub(crate) struct Scheduled {
    pub(crate) operation: Operation,
    pub(crate) collective: Collective,
    /// Its status on success.
    pub(crate) status: Status,
    /// Set when a test has found that a rank has given up its part, until its notice arrives.
    pub(crate) given_up: Option<(u32, Instant)>,
}

/// One rank's part in a nonblocking collective.
#[derive(Default)]
struct Plan {
    rounds: VecDeque<Round>,
    room: Vec<u8>,
    combine: Option<Combiner>,
}

impl Plan {
    fn push(&mut self, round: Round) {
        if !(round.sends.is_empty() && round.receives.is_empty()) {
            self.rounds.push_back(round);
        }
    }
}

fn fold(into: Bytes, from: Bytes) -> Fold {
    Fold { into: into.base, from: from.base, bytes: into.length }
}

impl Communicator {
    /// Starts to combine the data of all ranks.
    ///
    /// # Safety
    /// `data` must be valid, and not accessed otherwise, until the operation has ended or was
    /// released.
    pub(crate) unsafe fn begin_allreduce(
        &self,
        data: Bytes,
        element: ElementType,
        op: ReduceOp,
    ) -> Result<Begun, Error> {
        let number = self.next_number()?;
        let data = element.whole(data);
        let mut plan = Plan { combine: Some(element.combiner_of(op)?), ..Plan::default() };
        match self.tree_of(data.length) {
            Some(tree) => {
                self.push_up(&mut plan, tree, MEETING_RANK, data);
                self.push_out(&mut plan, data);
            }
            None => {
                let blocks = Blocks::of(data.length, element.bytes(), self.size());
                let part = |rank| data.part(blocks.range(rank));
                self.push_ring_of_sums(&mut plan, part);
                self.push_ring(&mut plan, part);
            }
        }
        // SAFETY: promised by the caller.
        unsafe { self.begin_plan(Collective::Allreduce, number, plan, self.rank(), data.length) }
    }

    /// Starts to combine the data of all ranks at `root`; the data of others serve as scratch
    /// space.
    ///
    /// # Safety
    /// As for [`Self::begin_allreduce`].
    pub(crate) unsafe fn begin_reduce(
        &self,
        root: u32,
        data: Bytes,
        element: ElementType,
        op: ReduceOp,
    ) -> Result<Begun, Error> {
        let number = self.next_number()?;
        self.check_rank(root)?;
        let data = element.whole(data);
        let mut plan = Plan { combine: Some(element.combiner_of(op)?), ..Plan::default() };
        match self.tree_of(data.length) {
            Some(tree) => self.push_up(&mut plan, tree, root, data),
            None => {
                let blocks = Blocks::of(data.length, element.bytes(), self.size());
                let part = |rank| data.part(blocks.range(rank));
                self.push_ring_of_sums(&mut plan, part);
                self.push_gather(&mut plan, root, part);
            }
        }
        // SAFETY: promised by the caller.
        unsafe { self.begin_plan(Collective::Reduce, number, plan, root, data.length) }
    }

    /// Starts to combine the data of all ranks. Each rank gets the block in the returned range of
    /// bytes; the remaining data are only read.
    ///
    /// # Safety
    /// As for [`Self::begin_allreduce`].
    pub(crate) unsafe fn begin_reduce_scatter(
        &self,
        data: Bytes,
        element: ElementType,
        op: ReduceOp,
    ) -> Result<(Begun, Range<usize>), Error> {
        let number = self.next_number()?;
        let data = element.whole(data);
        let mut plan = Plan { combine: Some(element.combiner_of(op)?), ..Plan::default() };
        let blocks = Blocks::of(data.length, element.bytes(), self.size());
        let (part, own) = (|rank| data.part(blocks.range(rank)), blocks.range(self.rank()));
        if self.goes_around(data.length) {
            self.push_ring_of_sums(&mut plan, part)
        } else {
            self.push_exchange_of_sums(&mut plan, part)
        }
        let (collective, me) = (Collective::ReduceScatter, self.rank());
        // SAFETY: promised by the caller.
        let begun = unsafe { self.begin_plan(collective, number, plan, me, own.len())? };
        Ok((begun, own))
    }

    /// Starts to gather every rank's `own` at `root`, in `all`; parts have these `lengths`, which
    /// are ignored on other ranks, or are all equal.
    ///
    /// # Safety
    /// Both must be valid, and not accessed otherwise, until the operation has ended or was
    /// released; `own` is only read, and `all` not accessed on other ranks.
    pub(crate) unsafe fn begin_gather(
        &self,
        root: u32,
        own: Bytes,
        all: Bytes,
        lengths: Option<&[usize]>,
    ) -> Result<Begun, Error> {
        let number = self.next_number()?;
        self.check_rank(root)?;
        let collective = lengths.map_or(Collective::Gather, |_| Collective::Gatherv);
        let mut plan = Plan::default();
        if self.rank() == root {
            let parts = match self.parts_as(all.length, lengths, own.length) {
                Ok(parts) => parts,
                Err(rejected) => {
                    self.push_gather(&mut plan, root, |_| nothing());
                    return Err(self.take_no_data(collective, number, plan, rejected));
                }
            };
            let part = |rank| all.part(parts.range(rank));
            // SAFETY: promised by the caller.
            unsafe { part(root).copy_from(own) };
            self.push_gather(&mut plan, root, part);
        } else {
            self.push_gather(&mut plan, root, |_| own);
        }
        // SAFETY: promised by the caller.
        unsafe { self.begin_plan(collective, number, plan, root, own.length) }
    }

    /// Starts to gather every rank's `own` at all, in `all`; parts have these `lengths`, or are all
    /// equal.
    ///
    /// # Safety
    /// As for [`Self::begin_gather`].
    pub(crate) unsafe fn begin_gather_at_all(
        &self,
        own: Bytes,
        all: Bytes,
        lengths: Option<&[usize]>,
    ) -> Result<Begun, Error> {
        let number = self.next_number()?;
        let parts = self.parts_as(all.length, lengths, own.length)?;
        let part = |rank| all.part(parts.range(rank));
        // SAFETY: promised by the caller.
        unsafe { part(self.rank()).copy_from(own) };
        let mut plan = Plan::default();
        if self.goes_around(all.length) && self.is_worth_a_ring(&parts) {
            self.push_ring(&mut plan, part);
        } else {
            self.push_gather(&mut plan, MEETING_RANK, part);
            self.push_out(&mut plan, all);
        }
        let collective = lengths.map_or(Collective::Allgather, |_| Collective::Allgatherv);
        // SAFETY: promised by the caller.
        unsafe { self.begin_plan(collective, number, plan, self.rank(), all.length) }
    }

    /// Starts to send every rank its part of the root's `all`; parts have these `lengths`, which
    /// are ignored on other ranks, or are all equal.
    ///
    /// # Safety
    /// As for [`Self::begin_gather`], except that `all` is only read, and `own` written.
    pub(crate) unsafe fn begin_scatter(
        &self,
        root: u32,
        all: Bytes,
        lengths: Option<&[usize]>,
        own: Bytes,
    ) -> Result<Begun, Error> {
        let number = self.next_number()?;
        self.check_rank(root)?;
        let collective = lengths.map_or(Collective::Scatter, |_| Collective::Scatterv);
        let mut plan = Plan::default();
        if self.rank() == root {
            let parts = match self.parts_as(all.length, lengths, own.length) {
                Ok(parts) => parts,
                Err(rejected) => {
                    self.push_scatter(&mut plan, 0, |_| nothing());
                    return Err(self.take_no_data(collective, number, plan, rejected));
                }
            };
            let part = |rank| all.part(parts.range(rank));
            // SAFETY: promised by the caller.
            unsafe { own.copy_from(part(root)) };
            self.push_scatter(&mut plan, parts.longest(), part);
        } else {
            let receives = vec![self.transfer(root, own)];
            plan.push(Round { receives, ..Round::default() });
        }
        // SAFETY: promised by the caller.
        unsafe { self.begin_plan(collective, number, plan, root, own.length) }
    }

    /// Starts to send part r of every rank's `data` to rank r, into `buffer`; parts have these
    /// `lengths`, those to send and those to receive, or are all equal.
    ///
    /// # Safety
    /// As for [`Self::begin_gather`], with `data` only read.
    pub(crate) unsafe fn begin_alltoall(
        &self,
        data: Bytes,
        buffer: Bytes,
        lengths: Option<[&[usize]; 2]>,
    ) -> Result<Begun, Error> {
        let number = self.next_number()?;
        let me = self.rank();
        let collective = lengths.map_or(Collective::Alltoall, |_| Collective::Alltoallv);
        let parts = self.parts_both_ways(data.length, buffer.length, lengths);
        let [outgoing, incoming] = self.conclude(collective, parts)?;
        let out = |to| data.part(outgoing.range(to));
        let room = |from| buffer.part(incoming.range(from));
        // SAFETY: promised by the caller.
        unsafe { room(me).copy_from(out(me)) };
        let mut plan = Plan::default();
        let longest = outgoing.longest().max(incoming.longest());
        self.push_exchange(&mut plan, longest, out, |_, from| room(from), None);
        // SAFETY: promised by the caller.
        unsafe { self.begin_plan(collective, number, plan, me, data.length) }
    }

    /// The number of the next nonblocking collective, if collectives still work. A call that is
    /// rejected for its arguments takes a number, too, so that ranks agree on those after it.
    fn next_number(&self) -> Result<u32, Error> {
        self.check_whole()?;
        Ok(self.inner.nonblocking.fetch_add(1, Ordering::Relaxed))
    }

    /// # Safety
    /// The memory of the plan must be valid, and not accessed otherwise, until the operation has
    /// ended or was released.
    unsafe fn begin_plan(
        &self,
        collective: Collective,
        number: u32,
        plan: Plan,
        source: u32,
        bytes: usize,
    ) -> Result<Begun, Error> {
        let schedule = self.schedule(collective, number, plan);
        // SAFETY: promised by the caller.
        let started = unsafe { self.engine_to_start()?.start_schedule(schedule) };
        let operation = started.map_err(|error| self.note_error(error))?;
        let status = Status { source, tag: 0, bytes };
        Ok(Begun::Pending(Pending::Scheduled(Scheduled {
            operation,
            collective,
            status,
            given_up: None,
        })))
    }

    fn schedule(&self, collective: Collective, number: u32, plan: Plan) -> Schedule {
        Schedule {
            channel: COLLECTIVE,
            communicator: self.inner.id,
            tag: purpose_of(collective) | number << PURPOSE_BITS,
            rounds: plan.rounds,
            combine: plan.combine.unwrap_or(|_, _| unreachable!("nothing is folded")),
            takes_all_lengths: goes_part_by_part(collective),
            room: plan.room,
        }
    }

    /// The part of a root whose arguments were rejected, with a plan whose messages need no memory:
    /// the other ranks neither wait for it nor send what nobody receives.
    fn take_no_data(
        &self,
        collective: Collective,
        number: u32,
        plan: Plan,
        rejected: Error,
    ) -> Error {
        let schedule =
            Schedule { takes_all_lengths: true, ..self.schedule(collective, number, plan) };
        let started = self.engine_to_start().and_then(|engine| {
            // SAFETY: no memory is accessed.
            unsafe { engine.run_schedule(schedule) }.map_err(|error| self.note_error(error))
        });
        started.err().unwrap_or(rejected)
    }

    // ---- parts ----------------------------------------------------------------------------

    /// The parts of `all` bytes, with these `lengths` or all as long as this rank's `own`.
    fn parts_as(&self, all: usize, lengths: Option<&[usize]>, own: usize) -> Result<Parts, Error> {
        if let Some(lengths) = lengths {
            return self.parts_of(all, lengths, own);
        }
        let parts = Parts::equal(own, self.size());
        parts.check_memory("all", all)?;
        Ok(parts)
    }

    /// The parts of `data` and `buffer` bytes, with these `lengths` or all equal.
    fn parts_both_ways(
        &self,
        data: usize,
        buffer: usize,
        lengths: Option<[&[usize]; 2]>,
    ) -> Result<[Parts; 2], Error> {
        let (me, size) = (self.rank(), self.size());
        let equal = || equal_parts("data", data, size);
        let [outgoing, incoming] = match lengths {
            None => [equal()?, equal()?],
            Some([outgoing, incoming]) => [
                Parts::varied("data_lengths", outgoing, size)?,
                Parts::varied("buffer_lengths", incoming, size)?,
            ],
        };
        outgoing.check_memory("data", data)?;
        incoming.check_memory("buffer", buffer)?;
        check_length(outgoing.length(me) as u64, incoming.length(me))?;
        Ok([outgoing, incoming])
    }

    // ---- rounds ---------------------------------------------------------------------------

    fn transfer(&self, with: u32, part: Bytes) -> Transfer {
        Transfer { with: self.job_rank(with), base: part.base, bytes: part.length }
    }

    fn others_than(&self, root: u32) -> impl Iterator<Item = u32> {
        (0..self.size()).filter(move |rank| *rank != root)
    }

    /// True if `bytes` bytes of all ranks together go around a ring.
    fn goes_around(&self, bytes: usize) -> bool {
        let part_bytes = bytes / self.size() as usize;
        self.size() > 1 && (bytes > TREE_BYTES_MAX || part_bytes >= PART_BYTES_MIN)
    }

    /// True if a ring, whose every step takes as long as the longest part, takes no longer than a
    /// gather at one rank and a broadcast of all parts down a tree.
    fn is_worth_a_ring(&self, parts: &Parts) -> bool {
        let levels = self.size().next_power_of_two().ilog2() as usize;
        let around = parts.longest().saturating_mul(self.size() as usize - 1);
        around <= parts.bytes().saturating_mul(1 + levels)
    }

    /// The tree up which `bytes` bytes go; `None` if they go around a ring.
    fn tree_of(&self, bytes: usize) -> Option<Tree> {
        if self.goes_around(bytes) {
            return None;
        }
        match self.usual_reduce(bytes) {
            ReduceAlgorithm::Tree(tree) => Some(tree),
            ReduceAlgorithm::Blocks | ReduceAlgorithm::Ring | ReduceAlgorithm::Words => {
                Some(Tree::Binomial)
            }
        }
    }

    /// Each rank combines the data of its children with its own, and sends the result to its
    /// parent.
    fn push_up(&self, plan: &mut Plan, tree: Tree, root: u32, data: Bytes) {
        let TreeNeighbours { parent, children } = self.tree_neighbours(self.rank(), tree, root);
        plan.room = vec![0; children.len() * data.length];
        let room = Bytes::of_mut(&mut plan.room);
        let row = |child: usize| room.part_of(child as u32, data.length);
        let receive = |(child, rank): (usize, &u32)| self.transfer(*rank, row(child));
        let receives = children.iter().enumerate().map(receive).collect();
        let folds = (0..children.len()).map(|child| fold(data, row(child))).collect();
        plan.push(Round { receives, folds, sends: Vec::new() });
        let sends = parent.iter().map(|parent| self.transfer(*parent, data)).collect();
        plan.push(Round { sends, ..Round::default() });
    }

    /// Distributes the data of the meeting rank to all.
    fn push_out(&self, plan: &mut Plan, data: Bytes) {
        let TreeNeighbours { parent, children } =
            self.tree_neighbours(self.rank(), TREE_OUT, MEETING_RANK);
        let receives = parent.iter().map(|parent| self.transfer(*parent, data)).collect();
        plan.push(Round { receives, ..Round::default() });
        // The largest subtrees first.
        let sends = children.iter().rev().map(|child| self.transfer(*child, data)).collect();
        plan.push(Round { sends, ..Round::default() });
    }

    /// Gathers the parts of all ranks at `root`. If there are many ranks, each sends when it is
    /// called.
    fn push_gather(&self, plan: &mut Plan, root: u32, part: impl Fn(u32) -> Bytes) {
        let is_called = self.size() > FLAT_RANKS_MAX;
        if self.rank() != root {
            if is_called {
                let receives = vec![self.transfer(root, nothing())];
                plan.push(Round { receives, ..Round::default() });
            }
            let sends = vec![self.transfer(root, part(self.rank()))];
            return plan.push(Round { sends, ..Round::default() });
        }
        let longest = self.others_than(root).map(|rank| part(rank).length).max().unwrap_or(0);
        let others: Vec<u32> = self.others_than(root).collect();
        for some in others.chunks(steps_at_once(longest.max(1))) {
            let receives = some.iter().map(|rank| self.transfer(*rank, part(*rank))).collect();
            let called = if is_called { some } else { &[] };
            let sends = called.iter().map(|rank| self.transfer(*rank, nothing())).collect();
            plan.push(Round { sends, receives, folds: Vec::new() });
        }
    }

    /// Sends the parts, of which the longest has `longest` bytes, from this rank to the others.
    fn push_scatter(&self, plan: &mut Plan, longest: usize, part: impl Fn(u32) -> Bytes) {
        let others: Vec<u32> = self.others_than(self.rank()).collect();
        for some in others.chunks(steps_at_once(longest.max(1))) {
            let sends = some.iter().map(|rank| self.transfer(*rank, part(*rank))).collect();
            plan.push(Round { sends, ..Round::default() });
        }
    }

    /// All parts go around the ring, and each rank's part is combined on its way to that rank. The
    /// parts of the others are only read.
    fn push_ring_of_sums(&self, plan: &mut Plan, part: impl Fn(u32) -> Bytes) {
        let ring = Ring::of(self);
        let hops = self.size() as usize - 1;
        let longest = (0..self.size()).map(|rank| part(rank).length).max().unwrap_or(0);
        plan.room = vec![0; 2 * longest];
        let rooms = Bytes::of_mut(&mut plan.room);
        // A received part stays there while it is forwarded.
        let room = |step: usize, bytes: usize| {
            let start = step % 2 * longest;
            rooms.part(start..start + bytes)
        };
        for step in 0..hops {
            let own = part(ring.back(step + 2));
            let come = room(step, own.length);
            let out = match step {
                0 => part(ring.back(1)),
                _ => room(step - 1, part(ring.back(step + 1)).length),
            };
            let folds =
                if step + 1 == hops { vec![fold(own, come)] } else { vec![fold(come, own)] };
            let receives = vec![self.transfer(ring.back(1), come)];
            let sends = vec![self.transfer(ring.next(), out)];
            plan.push(Round { sends, receives, folds });
        }
    }

    /// All parts go directly to their ranks, which combine them with their own, in order of steps.
    /// The parts of the others are only read.
    fn push_exchange_of_sums(&self, plan: &mut Plan, part: impl Fn(u32) -> Bytes) {
        let (own, longest) = (part(self.rank()), part(0).length);
        let at_once = steps_at_once(longest.max(1)).min(self.size() as usize - 1);
        plan.room = vec![0; at_once * own.length];
        let rooms = Bytes::of_mut(&mut plan.room);
        let room = |place: usize, _| rooms.part_of(place as u32, own.length);
        self.push_exchange(plan, longest, part, room, Some(own));
    }

    /// Sends `out` of each other rank to it, and receives from it into `room`, by the index in the
    /// round and the rank, in as many steps at a time as this length permits; if `sum` is given,
    /// all received data are combined in it.
    fn push_exchange(
        &self,
        plan: &mut Plan,
        longest: usize,
        out: impl Fn(u32) -> Bytes,
        room: impl Fn(usize, u32) -> Bytes,
        sum: Option<Bytes>,
    ) {
        let (me, size) = (self.rank(), self.size());
        let steps: Vec<u32> = (1..size).collect();
        for some in steps.chunks(steps_at_once(longest.max(1))) {
            let mut round = Round::default();
            for (place, step) in some.iter().enumerate() {
                let (to, from) = ((me + step) % size, (me + size - step) % size);
                let come = room(place, from);
                round.sends.push(self.transfer(to, out(to)));
                round.receives.push(self.transfer(from, come));
                round.folds.extend(sum.map(|sum| fold(sum, come)));
            }
            plan.push(round);
        }
    }

    /// The parts of all ranks go around, to all.
    fn push_ring(&self, plan: &mut Plan, part: impl Fn(u32) -> Bytes) {
        let ring = Ring::of(self);
        for step in 0..self.size() as usize - 1 {
            let sends = vec![self.transfer(ring.next(), part(ring.back(step)))];
            let receives = vec![self.transfer(ring.back(1), part(ring.back(step + 1)))];
            plan.push(Round { sends, receives, folds: Vec::new() });
        }
    }
}
