//! The barrier of the collective protocol: `firmware/barrier_step.h`.

use crate::{GROUP_MAX, STEPS_MAX};
use omnes_topo::{Barrier as Algorithm, Party, TopoError};
use omnes_wire::Rank;

const NOBODY: u32 = u32::MAX;
const EVERYBODY: u32 = u32::MAX - 1;

#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Step {
    send_to: u32,
    receive_from: u32,
}

/// What a member does in each barrier. Members are known by their index in the group.
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

/// Whom a step sends to or waits for.
pub type Partner = Party;

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
    /// The table of member `own` of `size` in `algorithm`; `is_multicast` if what goes to
    /// everybody goes as one packet.
    ///
    /// # Errors
    /// [`TopoError`] if `own` is not below `size` or `size` is 0.
    ///
    /// # Panics
    /// If the group has more than [`GROUP_MAX`] members.
    pub fn new(
        algorithm: Algorithm,
        own: u32,
        size: u32,
        is_multicast: bool,
    ) -> Result<Self, TopoError> {
        assert!(size as usize <= GROUP_MAX, "the firmware serves {GROUP_MAX} members");
        let schedule = algorithm.schedule(Rank(own), size)?;
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

    /// Members of the group.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// This member's index.
    pub fn own(&self) -> u32 {
        self.own
    }

    /// Steps of the barrier.
    pub fn steps(&self) -> u32 {
        self.steps
    }

    /// Whether what goes to everybody goes as one packet.
    pub fn is_multicast(&self) -> bool {
        self.is_multicast != 0
    }

    /// Whom the message of `step` goes to.
    pub fn send_to(&self, step: u32) -> Party {
        self.step.get(step as usize).map_or(Party::Nobody, |step| party(step.send_to))
    }

    /// Whose message `step` waits for.
    pub fn receive_from(&self, step: u32) -> Party {
        self.step.get(step as usize).map_or(Party::Nobody, |step| party(step.receive_from))
    }

    /// The first step that sends.
    pub fn first_send(&self) -> Option<u32> {
        (0..self.steps).find(|step| self.send_to(*step) != Party::Nobody)
    }
}

#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Record {
    epoch: u32,
    count: u32,
    arrived: [u64; GROUP_MAX / 64],
}

/// A member's state; at the start nothing has been entered, and the first barrier is epoch 1.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Barrier {
    entered: u32,
    done: u32,
    at: u32,
    reserved: u32,
    record: [Record; 2],
}

/// What to do after a call.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Action {
    /// A bit for each step whose message is to be sent.
    pub sends: u64,
    /// The barrier that they belong to.
    pub epoch: u32,
    is_done: u32,
}

impl Action {
    /// True if the call has ended the barrier.
    pub fn is_done(&self) -> bool {
        self.is_done != 0
    }

    /// The steps whose messages are to be sent, ascending.
    pub fn steps(&self) -> impl Iterator<Item = u32> + use<> {
        let mut sends = self.sends;
        std::iter::from_fn(move || {
            let step = (sends != 0).then(|| sends.trailing_zeros())?;
            sends &= sends - 1;
            Some(step)
        })
    }
}

/// What became of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It counts.
    Taken,
    /// It has come before.
    Duplicate,
    /// It is of no use now.
    Ignored,
    /// No member would send this.
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
        barrier: *mut Barrier,
        table: *const Table,
        epoch: u32,
        action: *mut Action,
    ) -> i32;
    fn omnes_native_barrier_arrive(
        barrier: *mut Barrier,
        table: *const Table,
        epoch: u32,
        step: u32,
        from: u32,
        action: *mut Action,
    ) -> i32;
    fn omnes_native_barrier_repeat(
        barrier: *const Barrier,
        table: *const Table,
        epoch: u32,
        step: u32,
        to: u32,
    ) -> i32;
}

impl Barrier {
    /// The state of a member that is done with barrier `epoch` and has heard of none after it.
    pub fn after(epoch: u32) -> Self {
        Self { entered: epoch, done: epoch, ..Self::default() }
    }

    /// Newest barrier that this member has entered.
    pub fn entered(&self) -> u32 {
        self.entered
    }

    /// Newest barrier that is done.
    pub fn done(&self) -> u32 {
        self.done
    }

    /// The step that waits, while a barrier is under way.
    pub fn waits_at(&self) -> Option<u32> {
        (self.entered != self.done).then_some(self.at)
    }

    /// Begins barrier `epoch`: the one after [`Self::done`], or nothing happens.
    pub fn enter(&mut self, table: &Table, epoch: u32) -> (Verdict, Action) {
        let mut action = Action::default();
        // SAFETY: the function reads and writes nothing but what it is given.
        let code = unsafe { omnes_native_barrier_enter(self, table, epoch, &raw mut action) };
        (verdict(code), action)
    }

    /// Takes the message of `step` in barrier `epoch` from member `from`.
    pub fn arrive(&mut self, table: &Table, epoch: u32, step: u32, from: u32) -> (Verdict, Action) {
        let mut action = Action::default();
        // SAFETY: as above.
        let code =
            unsafe { omnes_native_barrier_arrive(self, table, epoch, step, from, &raw mut action) };
        (verdict(code), action)
    }

    /// Whether member `to`, who misses the message of `step` in barrier `epoch`, gets it again.
    pub fn repeat(&self, table: &Table, epoch: u32, step: u32, to: u32) -> Verdict {
        // SAFETY: as above; nothing is written.
        verdict(unsafe { omnes_native_barrier_repeat(self, table, epoch, step, to) })
    }

    /// The members whose messages the step that waits misses; none if it does not wait.
    pub fn missing(&self, table: &Table) -> Vec<u32> {
        let Some(at) = self.waits_at() else { return Vec::new() };
        match table.receive_from(at) {
            Party::Nobody => Vec::new(),
            Party::Rank(rank) => vec![rank.0],
            Party::Everybody => {
                let record = &self.record[(self.entered & 1) as usize];
                let is_this = record.epoch == self.entered;
                let has_come = |member: &u32| {
                    is_this && record.arrived[*member as usize / 64] >> (member % 64) & 1 == 1
                };
                (0..table.size).filter(|it| *it != table.own && !has_come(it)).collect()
            }
        }
    }
}
