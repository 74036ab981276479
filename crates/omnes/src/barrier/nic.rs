//! Slots of the kernel NIC: obtaining and sharing them.

use crate::communicator::Communicator;
use crate::error::Error;
use omnes_net::nic::{MemberPlan, Nic, OpenSlot, Preference, SlotPlan};
use omnes_net::{MulticastState, SlotRequest, without_signals};
use omnes_topo::BarrierAlgorithm;
use omnes_wire::CommunicatorId;
use std::convert::identity;
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// The component that may run a job's barriers. The kernel NIC is an eBPF program of this library.
/// Text form: `auto`, `kernel`, `agent`, `user`, `off`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NicChoice {
    /// The kernel NIC, lent by the node's agent or loaded by the process; else user space.
    Auto,
    /// The kernel NIC, loaded by the process; else user space.
    Kernel,
    /// The kernel NIC, lent by the node's agent; else user space.
    Agent,
    /// User space.
    User,
    /// None of these: barriers by messages over channels.
    Off,
}

impl NicChoice {
    /// How the kernel NIC may be obtained; `None` if it may not be used.
    pub(crate) fn preference(self) -> Option<Preference> {
        match self {
            Self::Auto => Some(Preference::Any),
            Self::Kernel => Some(Preference::Kernel),
            Self::Agent => Some(Preference::Agent),
            Self::User | Self::Off => None,
        }
    }
}

impl FromStr for NicChoice {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            "kernel" => Ok(Self::Kernel),
            "agent" => Ok(Self::Agent),
            "user" => Ok(Self::User),
            "off" => Ok(Self::Off),
            _ => Err("must be auto, kernel, agent, user or off"),
        }
    }
}

/// How a communicator's barriers are run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NicState {
    /// Through the kernel NIC.
    Kernel,
    /// By the firmware in user space, while slots of the kernel NIC are being opened.
    Opening,
    /// By the firmware in user space.
    User {
        /// Why not through the kernel NIC, as text.
        reason: String,
    },
}

impl fmt::Display for NicState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel => write!(f, "kernel"),
            Self::Opening => write!(f, "user space: the kernel NIC is being opened"),
            Self::User { reason } => write!(f, "user space: {reason}"),
        }
    }
}

/// This process's access to the kernel NIC, which is attempted once.
#[derive(Default)]
pub(crate) struct NicAccess {
    /// Never locked while anything is being opened.
    state: Mutex<State>,
    /// Serializes attempts to get access.
    obtaining: Mutex<()>,
}

#[derive(Default)]
enum State {
    #[default]
    Untried,
    Ready(Arc<Mutex<Nic>>),
    Refused(String),
}

impl NicAccess {
    /// Opens a slot, unless it is no longer wanted when its turn comes; otherwise returns the
    /// reason. Takes some 100 ms in a process that has yet to load the firmware.
    fn open(
        &self,
        preference: Preference,
        request: &SlotRequest,
        is_wanted: impl FnOnce() -> bool,
    ) -> Result<OpenSlot, String> {
        let nic = self.obtain(preference)?;
        let mut nic = lock(&nic);
        if !is_wanted() {
            return Err("not needed any more".to_owned());
        }
        request.open(&mut nic).map_err(|error| error.to_string())
    }

    fn obtain(&self, preference: Preference) -> Result<Arc<Mutex<Nic>>, String> {
        let _one_at_a_time = lock(&self.obtaining);
        if let Some(known) = self.known() {
            return known;
        }
        let obtained = match Nic::obtain(preference) {
            Ok(nic) => State::Ready(Arc::new(Mutex::new(nic))),
            Err(error) => State::Refused(error.to_string()),
        };
        let mut state = lock(&self.state);
        if let State::Untried = *state {
            *state = obtained;
        }
        drop(state);
        self.known().expect("it has been tried")
    }

    fn known(&self) -> Option<Result<Arc<Mutex<Nic>>, String>> {
        match &*lock(&self.state) {
            State::Ready(nic) => Some(Ok(Arc::clone(nic))),
            State::Refused(reason) => Some(Err(reason.clone())),
            State::Untried => None,
        }
    }

    /// Records why no communicator of this rank uses the kernel NIC any more.
    pub(super) fn refuse(&self, reason: &str) {
        *lock(&self.state) = State::Refused(reason.to_owned());
    }

    fn reason(&self) -> Option<String> {
        self.known().and_then(Result::err)
    }
}

/// A thread that opens a slot and passes it on; it returns the reason if there is none. Once this
/// handle is dropped, the thread opens no slot that it has not begun to open: slots are opened one
/// by one, and a program may create, use and free communicators faster than that.
pub(crate) struct OpeningThread<T> {
    thread: JoinHandle<Result<T, String>>,
    _wanted: Arc<()>,
}

impl<T> OpeningThread<T> {
    fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits until the thread has ended.
    pub(crate) fn join(self) -> Result<T, String> {
        self.thread.join().unwrap_or_else(|_| Err("opening a slot has failed".to_owned()))
    }
}

/// A slot that is being opened, or the known outcome.
pub(super) enum OpeningSlot {
    Pending(OpeningThread<OpenSlot>),
    /// `None` if this rank needs no slot; an error tells why there is none.
    Known(Result<Option<OpenSlot>, String>),
}

impl OpeningSlot {
    /// True if it is known whether there is a slot.
    pub(super) fn is_over(&self) -> bool {
        match self {
            Self::Pending(thread) => thread.is_finished(),
            Self::Known(_) => true,
        }
    }

    /// Waits for the slot.
    pub(super) fn wait(self) -> Result<Option<OpenSlot>, String> {
        match self {
            Self::Pending(thread) => thread.join().map(Some),
            Self::Known(outcome) => outcome,
        }
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Length of a row in the exchange of obstacles: length and text of the reason; empty if there is
/// none.
const REASON_BYTES: usize = 160;

pub(super) const ONE_NODE: &str = "all ranks are on one node";
const TOO_EARLY: &str = "too early";
const NOT_OPEN_YET: &str = "not open yet";
const SWITCHED_OFF: &str = "switched off";

impl Communicator {
    pub(super) fn nic_use(&self) -> NicState {
        if self.inner.barriers.has_nic() {
            return NicState::Kernel;
        }
        if self.inner.barriers.is_opening() {
            return NicState::Opening;
        }
        let reason = self.inner.barriers.refusal().or_else(|| self.nic_obstacle());
        let reason = reason.unwrap_or_else(|| "not tried before a few barriers".to_owned());
        NicState::User { reason }
    }

    /// True if the job has run long enough on all members, whose settings may differ. Collective.
    pub(super) fn is_time_for_nic(&self) -> Result<bool, Error> {
        let job = self.job();
        let is_early = job.joined_at.elapsed() < job.config.nic_after;
        Ok(self.first_obstacle(is_early.then_some(TOO_EARLY))?.is_none())
    }

    /// True if every member knows whether it has a slot. Collective.
    pub(super) fn is_opened(&self, slot: &OpeningSlot) -> Result<bool, Error> {
        let is_pending = !slot.is_over();
        Ok(self.first_obstacle(is_pending.then_some(NOT_OPEN_YET))?.is_none())
    }

    /// Why this rank cannot have a slot for barriers here, as far as it knows without requesting
    /// one.
    pub(super) fn nic_obstacle(&self) -> Option<String> {
        let job = self.job();
        if self.nodes().count() < 2 {
            return Some(ONE_NODE.to_owned());
        }
        match job.config.nic.preference() {
            Some(_) => job.nic.reason(),
            None => Some(SWITCHED_OFF.to_owned()),
        }
    }

    /// Begins to open a slot for barriers if this rank is its node's leader.
    pub(super) fn begin_own_slot(
        &self,
        id: CommunicatorId,
        algorithm: BarrierAlgorithm,
    ) -> OpeningSlot {
        if self.nodes().local()[0] != self.rank() {
            return OpeningSlot::Known(Ok(None));
        }
        let begun = self.slot_plan(id, algorithm).and_then(|plan| self.begin_slot(plan, identity));
        begun.map_or_else(|reason| OpeningSlot::Known(Err(reason)), OpeningSlot::Pending)
    }

    /// Begins to open a slot of the kernel NIC, if the job may have one; the opening thread passes
    /// it to `then`. Otherwise returns the reason.
    pub(crate) fn begin_slot<T: Send + 'static>(
        &self,
        plan: SlotPlan,
        then: impl FnOnce(OpenSlot) -> T + Send + 'static,
    ) -> Result<OpeningThread<T>, String> {
        let (preference, request) = self.slot_request(plan)?;
        let access = Arc::clone(&self.job().nic);
        let builder = std::thread::Builder::new().name("omnes-nic".to_owned());
        let wanted = Arc::new(());
        let wish = Arc::downgrade(&wanted);
        let is_wanted = move || wish.strong_count() > 0;
        let open = move || access.open(preference, &request, is_wanted).map(then);
        let thread = without_signals(|| builder.spawn(open));
        let thread = thread
            .map_err(|error| format!("cannot start the thread that opens a slot: {error}"))?;
        Ok(OpeningThread { thread, _wanted: wanted })
    }

    /// Opens a slot of the kernel NIC, if the job may have one; otherwise returns the reason.
    pub(crate) fn open_slot(&self, plan: SlotPlan) -> Result<OpenSlot, String> {
        let (preference, request) = self.slot_request(plan)?;
        self.job().nic.open(preference, &request, || true)
    }

    fn slot_request(&self, plan: SlotPlan) -> Result<(Preference, SlotRequest), String> {
        let job = self.job();
        let preference = job.config.nic.preference().ok_or(SWITCHED_OFF)?;
        let request = job.engine.slot_request(plan).map_err(|error| error.to_string())?;
        Ok((preference, request))
    }

    fn slot_plan(
        &self,
        id: CommunicatorId,
        algorithm: BarrierAlgorithm,
    ) -> Result<SlotPlan, String> {
        let job = self.job();
        let engine = &job.engine;
        let addresses = engine.nics();
        let address = |rank: u32| {
            let known = addresses.get(rank as usize).map(|nic| nic.steps);
            known.ok_or_else(|| "the ports of the other ranks are not known".to_owned())
        };
        let leaders: Vec<u32> = self.nodes().by_node().iter().map(|node| node[0].0).collect();
        let peer = |rank: &u32| address(*rank).map(|address| (*rank, address));
        let peers: Result<Vec<(u32, SocketAddr)>, String> = leaders.iter().map(peer).collect();
        let rank = self.job_rank(self.rank()).0;
        let own = leaders.iter().position(|leader| *leader == rank);
        let own = own.expect("a leader leads a node") as u32;
        let group = match (algorithm, engine.multicast()) {
            (BarrierAlgorithm::Counter, MulticastState::On { group, .. })
                if self.is_worth_multicast() =>
            {
                Some(group)
            }
            _ => None,
        };
        let member = |(index, rank): (usize, &u32)| MemberPlan {
            rank: *rank,
            index: index as u32,
            key: engine.sender_key(omnes_wire::Rank(*rank)),
        };
        Ok(SlotPlan {
            job: engine.job(),
            communicator: id.0,
            channel: 0,
            rank,
            own,
            socket: address(rank)?,
            doorbell: None,
            peers: peers?,
            members: leaders.iter().enumerate().map(member).collect(),
            group,
            group_ttl: job.config.multicast_ttl,
            barrier: Some(algorithm.to_string()),
            tree: None,
            forwards: false,
            by_mac: false,
        })
    }

    /// The first obstacle that any member reports, with its rank. Collective.
    pub(crate) fn first_obstacle(&self, own: Option<&str>) -> Result<Option<String>, Error> {
        let mut row = [0; REASON_BYTES];
        if let Some(reason) = own {
            let length = reason.floor_char_boundary(REASON_BYTES - 1);
            row[0] = length.max(1) as u8;
            row[1..=length].copy_from_slice(&reason.as_bytes()[..length]);
        }
        let table = self.exchange(&row)?;
        let told = table.chunks(REASON_BYTES).enumerate().find(|(_, row)| row[0] != 0);
        Ok(told.map(|(rank, row)| {
            let text = row.get(1..1 + usize::from(row[0])).unwrap_or_default();
            let text = String::from_utf8_lossy(text);
            let text = text.trim_end_matches('\0');
            // An earlier exchange may already have added the rank.
            if text.starts_with("rank ") { text.to_owned() } else { format!("rank {rank}: {text}") }
        }))
    }
}
