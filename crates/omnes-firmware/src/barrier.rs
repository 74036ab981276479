//! The barrier of the collective protocol: `firmware/barrier_step.h`.

use crate::{COMBINING_MEMBERS_MAX, GROUP_MAX, STEPS_MAX};
use omnes_topo::{BarrierAlgorithm, Party, TopoError};
use omnes_wire::{CARRIED_MAX, Rank, Words};
use std::ptr;

const NOBODY: u32 = u32::MAX;
const EVERYBODY: u32 = u32::MAX - 1;

#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Step {
    send_to: u32,
    receive_from: u32,
}

/// What a member does in each barrier. Members are identified by their index in the group.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Table {
    size: u32,
    own: u32,
    steps: u32,
    is_multicast: u32,
    sends: u64,
    waits: u64,
    waits_for_all: u64,
    step: [Step; STEPS_MAX],
}

fn index(party: Party) -> u32 {
    match party {
        Party::Nobody => NOBODY,
        Party::Everybody => EVERYBODY,
        Party::Rank(rank) => rank.0,
    }
}

fn party(index: u32) -> Party {
    match index {
        NOBODY => Party::Nobody,
        EVERYBODY => Party::Everybody,
        index => Party::Rank(Rank(index)),
    }
}

impl Table {
    /// The table of member `own` of `size` in `algorithm`; `is_multicast` if a message to everybody
    /// is one packet.
    ///
    /// # Errors
    /// [`TopoError`] if `own` is not below `size` or `size` is 0.
    ///
    /// # Panics
    /// If the group has more than [`GROUP_MAX`] members.
    pub fn new(
        algorithm: BarrierAlgorithm,
        own: u32,
        size: u32,
        is_multicast: bool,
    ) -> Result<Self, TopoError> {
        assert!(size as usize <= GROUP_MAX, "the firmware serves {GROUP_MAX} members");
        let schedule = algorithm.schedule(Rank(own), size)?;
        const { assert!(STEPS_MAX == omnes_topo::barrier::STEPS_MAX as usize) };
        let mut step = [Step { send_to: NOBODY, receive_from: NOBODY }; STEPS_MAX];
        for (entry, from) in step.iter_mut().zip(&schedule) {
            *entry = Step { send_to: index(from.send_to), receive_from: index(from.receive_from) };
        }
        let mask = |has: fn(&Step) -> bool| {
            let bits = step.iter().enumerate().filter(|(_, step)| has(step));
            bits.fold(0, |mask, (at, _)| mask | 1 << at)
        };
        Ok(Self {
            size,
            own,
            steps: schedule.len() as u32,
            is_multicast: is_multicast.into(),
            sends: mask(|step| step.send_to != NOBODY),
            waits: mask(|step| step.receive_from < EVERYBODY),
            waits_for_all: mask(|step| step.receive_from == EVERYBODY),
            step,
        })
    }

    /// Number of members of the group.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// This member's index.
    pub fn own(&self) -> u32 {
        self.own
    }

    /// Number of steps of the barrier.
    pub fn steps(&self) -> u32 {
        self.steps
    }

    /// True if a message to everybody is one packet.
    pub fn is_multicast(&self) -> bool {
        self.is_multicast != 0
    }

    /// The destination of the message of `step`.
    pub fn send_to(&self, step: u32) -> Party {
        self.step.get(step as usize).map_or(Party::Nobody, |step| party(step.send_to))
    }

    /// The sender of the message that `step` waits for.
    pub fn receive_from(&self, step: u32) -> Party {
        self.step.get(step as usize).map_or(Party::Nobody, |step| party(step.receive_from))
    }

    /// The first step that sends.
    pub fn first_send(&self) -> Option<u32> {
        (0..self.steps).find(|step| self.send_to(*step) != Party::Nobody)
    }
}

/// The operation by which a barrier combines two 64-bit words into one: `firmware/combine.h`.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Combine {
    /// A barrier without words.
    #[default]
    Nothing = 0,
    /// The sum, which wraps around.
    Sum = 1,
    /// The product, which wraps around.
    Product = 2,
    /// The lesser of two signed integers.
    Min = 3,
    /// The greater of two signed integers.
    Max = 4,
    /// Bitwise and.
    And = 5,
    /// Bitwise or.
    Or = 6,
    /// Bitwise exclusive or.
    Xor = 7,
    /// The sum of doubles, rounded to the nearest; every NaN has the same bits.
    SumF64 = 8,
}

impl Combine {
    /// All operations except [`Self::Nothing`].
    pub const ALL: [Self; 8] = [
        Self::Sum,
        Self::Product,
        Self::Min,
        Self::Max,
        Self::And,
        Self::Or,
        Self::Xor,
        Self::SumF64,
    ];
}

/// In place of a [`Combine`]: the word is already the result.
pub(crate) const COMBINE_KNOWN: u32 = 9;

/// True if the barriers of such a group can combine words: those of a tree, whose root has the
/// result before any other member.
pub fn can_combine(algorithm: BarrierAlgorithm, size: u32) -> bool {
    match algorithm {
        BarrierAlgorithm::GatherBroadcast => true,
        BarrierAlgorithm::Counter => size as usize <= COMBINING_MEMBERS_MAX,
        BarrierAlgorithm::Dissemination | BarrierAlgorithm::PairwiseExchange => false,
    }
}

/// What a member contributes to a barrier.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Contribution {
    combine: u32,
    reserved: u32,
    words: Words,
}

impl Contribution {
    /// Up to [`CARRIED_MAX`] words, as many as every member contributes, and the operation that
    /// combines them.
    pub fn new(combine: Combine, words: &[u64]) -> Self {
        Self::numbered(combine as u32, Words::new(words))
    }

    /// As [`Self::new`], with the number of the operation; an operation that does not exist yields
    /// 0.
    pub fn numbered(combine: u32, words: Words) -> Self {
        Self { combine, reserved: 0, words }
    }

    /// Number of the operation that combines the words.
    pub fn combine(&self) -> u32 {
        self.combine
    }

    /// The words.
    pub fn words(&self) -> Words {
        self.words
    }

    /// Combined with the words of others: the contribution of a member that enters for several.
    #[must_use]
    pub fn with(self, others: impl IntoIterator<Item = Words>) -> Self {
        if self.combine == Combine::Nothing as u32 {
            return self;
        }
        // SAFETY: the function has no state.
        let combined = |a, b| unsafe { omnes_native_combined(self.combine, a, b) };
        let words = others.into_iter().fold(self.words, |own, others| own.zip(others, combined));
        Self { words, ..self }
    }
}

#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Record {
    epoch: u32,
    count: u32,
}

/// Initially nothing has been entered, and the first barrier is epoch 1.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct State {
    entered: u32,
    done: u32,
    at: u32,
    reserved: u32,
    record: [Record; 2],
    own: [Contribution; 2],
}

/// Bytes of a state, without its bits.
pub(crate) const STATE_BYTES: usize = size_of::<State>();

/// The bits of both records, and the number of words of each.
#[repr(C)]
pub(crate) struct Arrived {
    bits: *mut u64,
    carried: *mut u64,
    bit_words: u32,
}

/// Words that messages of two barriers have carried.
type Carried = [u64; 2 * COMBINING_MEMBERS_MAX * CARRIED_MAX];

/// A member's state: a few words, and two bits for each member if a step waits for everybody; 4 KiB
/// more once words have been combined.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Barrier {
    state: State,
    /// The bits of both records if one word each is enough.
    few: [u64; 2],
    /// The bits otherwise.
    many: Box<[u64]>,
    /// Words of both records, once one of them is not 0.
    carried: Option<Box<Carried>>,
}

/// What to do after a call.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Action {
    /// A bit for each step whose message has to be sent.
    pub sends: u64,
    /// The barrier that these steps belong to.
    pub epoch: u32,
    is_done: u32,
}

impl Action {
    /// True if the call has ended the barrier.
    pub fn is_done(&self) -> bool {
        self.is_done != 0
    }

    /// The steps whose messages have to be sent, ascending.
    pub fn steps(&self) -> impl Iterator<Item = u32> + use<> {
        let mut sends = self.sends;
        std::iter::from_fn(move || {
            let step = (sends != 0).then(|| sends.trailing_zeros())?;
            sends &= sends - 1;
            Some(step)
        })
    }
}

/// Outcome of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The message or entry counts.
    Taken,
    /// The message has arrived before.
    Duplicate,
    /// It is of no use now.
    Ignored,
    /// No correct member sends this.
    Nonsense,
}

fn verdict(code: i32) -> Verdict {
    match code {
        0 => Verdict::Taken,
        1 => Verdict::Duplicate,
        2 => Verdict::Ignored,
        _ => Verdict::Nonsense,
    }
}

unsafe extern "C" {
    fn omnes_native_barrier_enter(
        state: *mut State,
        arrived: *const Arrived,
        table: *const Table,
        epoch: u32,
        own: *const Contribution,
        action: *mut Action,
    ) -> i32;
    fn omnes_native_barrier_arrive(
        state: *mut State,
        arrived: *const Arrived,
        table: *const Table,
        epoch: u32,
        step: u32,
        from: u32,
        carried: *const Words,
        action: *mut Action,
    ) -> i32;
    fn omnes_native_barrier_repeat(
        state: *const State,
        table: *const Table,
        epoch: u32,
        step: u32,
        to: u32,
    ) -> i32;
    fn omnes_native_barrier_words(
        state: *const State,
        table: *const Table,
        carried: *const u64,
        epoch: u32,
        step: u32,
        words: *mut Words,
    );
    fn omnes_native_combined(combine: u32, a: u64, b: u64) -> u64;
}

impl Barrier {
    /// The state of a member with this table that is done with barrier `epoch` and has received
    /// nothing of a later one. Groups begin with epoch 0.
    pub fn after(table: &Table, epoch: u32) -> Self {
        let words = match table.waits_for_all {
            0 => 1,
            _ => (table.size as usize).div_ceil(64).max(1),
        };
        let many = if words > 1 { vec![0; 2 * words].into() } else { Box::default() };
        let state = State { entered: epoch, done: epoch, ..State::default() };
        Self { state, few: [0; 2], many, carried: None }
    }

    /// Memory of this state, in bytes.
    pub fn bytes(&self) -> usize {
        let carried = self.carried.as_deref().map_or(0, size_of_val);
        size_of::<Self>() + size_of_val(&*self.many) + carried
    }

    /// The bits of both records.
    fn bits(&self) -> &[u64] {
        if self.many.is_empty() { &self.few } else { &self.many }
    }

    /// State and bits, for the firmware.
    fn parts(&mut self) -> (*mut State, Arrived) {
        let bits: &mut [u64] = if self.many.is_empty() { &mut self.few } else { &mut self.many };
        let bit_words = bits.len() as u32 / 2;
        let carried = self.carried.as_deref_mut();
        let carried = carried.map_or(ptr::null_mut(), |words| words.as_mut_ptr());
        (&raw mut self.state, Arrived { bits: bits.as_mut_ptr(), carried, bit_words })
    }

    /// Stores words from now on; all earlier ones were 0.
    fn keep_words(&mut self) {
        self.carried.get_or_insert_with(|| Box::new([0; 2 * COMBINING_MEMBERS_MAX * CARRIED_MAX]));
    }

    /// Newest barrier that this member has entered.
    pub fn entered(&self) -> u32 {
        self.state.entered
    }

    /// Newest barrier that is done.
    pub fn done(&self) -> u32 {
        self.state.done
    }

    /// The waiting step, while a barrier is in progress.
    pub fn waits_at(&self) -> Option<u32> {
        (self.state.entered != self.state.done).then_some(self.state.at)
    }

    /// Begins barrier `epoch`, if it is the one after [`Self::done`]; otherwise nothing happens. A
    /// contribution that combines words requires a group that [`can_combine`].
    pub fn enter(&mut self, table: &Table, epoch: u32, own: Contribution) -> (Verdict, Action) {
        if own.combine != Combine::Nothing as u32 {
            self.keep_words();
        }
        let mut action = Action::default();
        let (state, arrived) = self.parts();
        let (arrived, own, action_out) = (&raw const arrived, &raw const own, &raw mut action);
        // SAFETY: the function accesses nothing but its arguments, and of the bits no more than the
        // number it is given.
        let code =
            unsafe { omnes_native_barrier_enter(state, arrived, table, epoch, own, action_out) };
        (verdict(code), action)
    }

    /// Ends barrier `epoch`, the one after [`Self::done`], with these results, because another
    /// member reports so. Messages of that barrier carry them from now on.
    pub fn end(&mut self, table: &Table, epoch: u32, results: Words) {
        let State { entered, done, at, own, .. } = &mut self.state;
        (*entered, *done, *at) = (epoch, epoch, table.steps);
        let own = &mut own[(epoch & 1) as usize];
        if own.combine != Combine::Nothing as u32 {
            *own = Contribution::numbered(COMBINE_KNOWN, results);
        }
    }

    /// Records the message of `step` in barrier `epoch` from member `from`, which carries `words`.
    pub fn arrive(
        &mut self,
        table: &Table,
        (epoch, step): (u32, u32),
        from: u32,
        words: Words,
    ) -> (Verdict, Action) {
        if words != Words::NONE {
            self.keep_words();
        }
        let mut action = Action::default();
        let (state, arrived) = self.parts();
        let (arrived, words, action_out) = (&raw const arrived, &raw const words, &raw mut action);
        // SAFETY: as above.
        let code = unsafe {
            omnes_native_barrier_arrive(state, arrived, table, epoch, step, from, words, action_out)
        };
        (verdict(code), action)
    }

    /// Decides whether member `to`, which misses the message of `step` in barrier `epoch`, gets it
    /// again.
    pub fn repeat(&self, table: &Table, epoch: u32, step: u32, to: u32) -> Verdict {
        // SAFETY: as above; nothing is written.
        verdict(unsafe {
            omnes_native_barrier_repeat(&raw const self.state, table, epoch, step, to)
        })
    }

    /// The words of the message of `step` in barrier `epoch`, which has been sent or is about to
    /// be; [`Words::NONE`] in barriers that combine nothing.
    pub fn words(&self, table: &Table, epoch: u32, step: u32) -> Words {
        let carried = self.carried.as_deref();
        let carried = carried.map_or(ptr::null(), |words| words.as_ptr());
        let (state, mut words) = (&raw const self.state, Words::NONE);
        // SAFETY: as above; only the words are written.
        unsafe {
            omnes_native_barrier_words(state, table, carried, epoch, step, &raw mut words);
        }
        words
    }

    /// The words of all members combined in barrier [`Self::done`]; [`Words::NONE`] if it combined
    /// nothing.
    pub fn results(&self, table: &Table) -> Words {
        self.words(table, self.state.done, table.steps)
    }

    /// The members whose messages the waiting step misses; empty if no step waits.
    pub fn missing(&self, table: &Table) -> Vec<u32> {
        let Some(at) = self.waits_at() else { return Vec::new() };
        match table.receive_from(at) {
            Party::Nobody => Vec::new(),
            Party::Rank(rank) => vec![rank.0],
            Party::Everybody => {
                let parity = (self.state.entered & 1) as usize;
                let is_this = self.state.record[parity].epoch == self.state.entered;
                let words = self.bits().len() / 2;
                let arrived = &self.bits()[parity * words..][..words];
                let has_come = |member: &u32| {
                    is_this && arrived[*member as usize / 64] >> (member % 64) & 1 == 1
                };
                (0..table.size).filter(|it| *it != table.own && !has_come(it)).collect()
            }
        }
    }
}
