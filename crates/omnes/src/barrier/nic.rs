//! Getting slots of the kernel NIC.

use crate::communicator::Communicator;
use crate::error::Error;
use omnes_net::MulticastState;
use omnes_net::nic::{MemberPlan, Nic, NicError, OpenSlot, Preference, SlotPlan};
use omnes_topo::BarrierAlgorithm;
use omnes_wire::CommunicatorId;
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

/// What may run a job's barriers. The kernel NIC is an eBPF program of this library. Text form:
/// `auto`, `kernel`, `agent`, `user`, `off`.
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
    /// Neither: barriers by messages over channels.
    Off,
}

impl NicChoice {
    /// Which of the kernel's it may be; none if it may not.
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
            Self::User { reason } => write!(f, "user space: {reason}"),
        }
    }
}

/// This process's access to the kernel NIC, which is tried once.
#[derive(Default)]
pub(crate) struct NicAccess {
    state: Mutex<State>,
}

#[derive(Default)]
enum State {
    #[default]
    Untried,
    Ready(Box<Nic>),
    Refused(String),
}

impl NicAccess {
    fn with<T>(
        &self,
        preference: Preference,
        open: impl FnOnce(&mut Nic) -> Result<T, NicError>,
    ) -> Result<T, String> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let State::Untried = *state {
            *state = match Nic::obtain(preference) {
                Ok(nic) => State::Ready(Box::new(nic)),
                Err(error) => State::Refused(error.to_string()),
            };
        }
        match &mut *state {
            State::Ready(nic) => open(nic).map_err(|error| error.to_string()),
            State::Refused(reason) => Err(reason.clone()),
            State::Untried => Err("not tried yet".to_owned()),
        }
    }

    /// The members have agreed to do without, for a reason.
    pub(super) fn refuse(&self, reason: &str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        *state = State::Refused(reason.to_owned());
    }

    fn reason(&self) -> Option<String> {
        match &*self.state.lock().unwrap_or_else(PoisonError::into_inner) {
            State::Refused(reason) => Some(reason.clone()),
            State::Untried | State::Ready(_) => None,
        }
    }
}

/// A row of the exchange on obstacles: length and text of the reason; none if it is empty.
const REASON_BYTES: usize = 160;

pub(super) const ONE_NODE: &str = "all ranks are on one node";
const TOO_EARLY: &str = "too early";
const SWITCHED_OFF: &str = "switched off";

impl Communicator {
    pub(super) fn nic_use(&self) -> NicState {
        if self.inner.barriers.has_nic() {
            return NicState::Kernel;
        }
        let reason = self.nic_obstacle();
        let reason = reason.unwrap_or_else(|| "not tried before a few barriers".to_owned());
        NicState::User { reason }
    }

    /// True if the job has run for long enough on all members. Collective.
    pub(super) fn is_time_for_nic(&self) -> Result<bool, Error> {
        let job = self.job();
        if job.config.nic_after.is_zero() {
            return Ok(true);
        }
        let is_early = job.joined_at.elapsed() < job.config.nic_after;
        Ok(self.first_obstacle(is_early.then_some(TOO_EARLY))?.is_none())
    }

    /// Why this rank can have no slot for barriers here, as far as it knows without asking for one.
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

    /// A slot for barriers, where this rank is its node's leader; none where it is not.
    pub(super) fn open_own_slot(
        &self,
        id: CommunicatorId,
        algorithm: BarrierAlgorithm,
    ) -> Result<Option<OpenSlot>, String> {
        if self.nodes().local()[0] != self.rank() {
            return Ok(None);
        }
        self.open_slot(&self.slot_plan(id, algorithm)?).map(Some)
    }

    /// A slot of the kernel's NIC, if the job may have one; the reason otherwise.
    pub(crate) fn open_slot(&self, plan: &SlotPlan) -> Result<OpenSlot, String> {
        let job = self.job();
        let preference = job.config.nic.preference().ok_or(SWITCHED_OFF)?;
        // Loading firmware for nothing would take its time.
        plan.check().map_err(|error| error.to_string())?;
        job.nic.with(preference, |nic| job.engine.open_slot(nic, plan))
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
        let rank = self.in_job(self.rank()).0;
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

    /// The first obstacle that any member tells, with its rank. Collective.
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
            format!("rank {rank}: {}", String::from_utf8_lossy(text).trim_end_matches('\0'))
        }))
    }
}
