//! Multi-send in place of multicast: whether a job uses it, and the tree of a communicator.
//!
//! If the probe has found no multicast, packets to all ranks go down a tree of multi-sends over the
//! nodes [MS-R7, R15], below the same machine: window, reports and repair are those of broadcasts
//! over multicast. Every rank opens its part independently: the kernel NIC of a rank that has a
//! slot clones and forwards, a rank without a slot does both in user space, and the two
//! interoperate. Opening a slot takes some milliseconds, so a communicator that is created after
//! the start of the job gets its slot only after some use, on a thread of its own.

use crate::barrier::OpeningThread;
use crate::communicator::Communicator;
use crate::error::Error;
use omnes_net::MultiSendPlan;
use omnes_net::nic::{MemberPlan, SlotPlan};
use omnes_topo::{Lambda, Tree, TreeTable};
use omnes_wire::{CommunicatorId, Rank};
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Latency of a hop in units of the time that one more copy takes, if it was not measured; with
/// this value, groups of up to eight nodes get a flat tree [MS-R17].
const LAMBDA: Lambda = Lambda::whole(6);

/// Number of broadcasts that a communicator multi-sends before a slot is worth its cost; a long
/// broadcast counts once more for each [`BROADCAST_BYTES`].
const BROADCASTS_BEFORE_SLOT: usize = 16;
const BROADCAST_BYTES: usize = 64 << 10;

/// How packets to all ranks are sent where multicast does not work. Text form: `auto`, `off`, or a
/// tree (`postal=6`, `binomial`, `flat`, `chain`, `knomial=4`), optionally with the component that
/// copies and forwards: `postal=6:nic`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MultiSend {
    /// Multi-send, unless the job has too many nodes for the firmware's tables.
    Auto,
    /// No multi-send: broadcasts go down trees of messages.
    Off,
    /// Multi-send along this tree.
    Tree(Tree, Cloning),
}

/// The component that makes the copies of a multi-send. Text form: `auto`, `nic`, `host`, `loop`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cloning {
    /// The kernel NIC if it is available, for sent and for received packets; else user space.
    Auto,
    /// The kernel NIC, for both; the job does not start without it.
    Nic,
    /// The kernel NIC for packets that this rank sends; the job does not start without it. Received
    /// packets are forwarded in user space ("NIC-assisted").
    Host,
    /// User space.
    Loop,
}

impl FromStr for Cloning {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Ok(match text {
            "auto" => Self::Auto,
            "nic" => Self::Nic,
            "host" => Self::Host,
            "loop" => Self::Loop,
            _ => return Err(()),
        })
    }
}

impl fmt::Display for Cloning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Auto => "auto",
            Self::Nic => "nic",
            Self::Host => "host",
            Self::Loop => "loop",
        })
    }
}

impl fmt::Display for MultiSend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Off => f.write_str("off"),
            Self::Tree(tree, Cloning::Auto) => write!(f, "{tree}"),
            Self::Tree(tree, cloning) => write!(f, "{tree}:{cloning}"),
        }
    }
}

impl FromStr for MultiSend {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WRONG: &str = "must be auto, off, or a tree such as postal=6, flat or binomial, also \
                             with who makes the copies: flat:nic, flat:host, flat:loop";
        match text {
            "auto" => return Ok(Self::Auto),
            "off" => return Ok(Self::Off),
            _ => {}
        }
        let (tree, cloning) = text.split_once(':').unwrap_or((text, "auto"));
        let tree = tree.parse().map_err(|_| WRONG)?;
        Ok(Self::Tree(tree, cloning.parse().map_err(|()| WRONG)?))
    }
}

/// The multi-send that a job uses instead of multicast.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MultiSendUse {
    /// The tree over the nodes.
    pub tree: Tree,
    /// Whether the kernel NIC makes this rank's copies.
    pub is_in_kernel: bool,
    /// Whether the kernel NIC also forwards received packets.
    pub kernel_forwards: bool,
    /// Why the kernel NIC does not make the copies, as text.
    pub reason: String,
}

impl MultiSendUse {
    /// The component that makes the copies on this rank; never [`Cloning::Auto`].
    pub fn form(&self) -> Cloning {
        match (self.is_in_kernel, self.kernel_forwards) {
            (true, true) => Cloning::Nic,
            (true, false) => Cloning::Host,
            (false, _) => Cloning::Loop,
        }
    }

    /// Tree and form as text: `postal=6:nic`.
    pub fn brief(&self) -> String {
        format!("{}:{}", self.tree, self.form())
    }
}

impl fmt::Display for MultiSendUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tree = self.tree;
        match (self.is_in_kernel, self.kernel_forwards) {
            (true, true) => write!(f, "{tree}, copied and forwarded by the kernel NIC"),
            (true, false) => write!(f, "{tree}, copied by the kernel NIC, forwarded by hosts"),
            (false, _) => write!(f, "{tree}, in user space: {}", self.reason),
        }
    }
}

/// A slot that a communicator requests once it has multi-sent enough.
#[derive(Default)]
pub(crate) struct LateSlot(Mutex<Late>);

#[derive(Default)]
enum Late {
    /// There is no slot to wait for.
    #[default]
    Settled,
    /// Until `left` reaches zero.
    Wait { left: usize, tree: Tree },
    /// A separate thread opens the slot, and passes it to the communicator's multi-send.
    Opening(OpeningThread<()>),
}

impl LateSlot {
    /// Starts to count towards a slot for `tree`, or stops if there is none; waits for a slot that
    /// is being opened.
    fn wait_for(&self, tree: Option<Tree>) {
        let left = BROADCASTS_BEFORE_SLOT;
        let next = tree.map_or(Late::Settled, |tree| Late::Wait { left, tree });
        let before = std::mem::replace(&mut *self.lock(), next);
        if let Late::Opening(thread) = before {
            let _ = thread.join();
        }
    }

    /// Counts another broadcast of `bytes` bytes. Returns the tree, to a single caller, when it is
    /// time to request a slot.
    fn count(&self, bytes: usize) -> Option<Tree> {
        let mut late = self.lock();
        let Late::Wait { left, tree } = &mut *late else { return None };
        *left = left.saturating_sub(1 + bytes / BROADCAST_BYTES);
        let due = (*left == 0).then_some(*tree);
        if due.is_some() {
            *late = Late::Settled;
        }
        due
    }

    fn lock(&self) -> MutexGuard<'_, Late> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Communicator {
    /// Uses multi-send in place of multicast, if the job may. Called once, by all ranks of the job,
    /// when the probe has found no multicast.
    pub(crate) fn use_multisend(&self) -> Result<(), Error> {
        let job = self.job();
        let fits = self.nodes().count() > 1 && self.nodes().count() <= TreeTable::SIZE_MAX;
        if job.config.multisend == MultiSend::Off || !fits {
            return Ok(());
        }
        job.engine.use_multisend();
        job.allow_multisend();
        let opened = match self.open_multisend() {
            // All ranks detect this error alike.
            Err(error @ Error::MultiSend { .. }) => return Err(error),
            opened => opened,
        };
        job.describe_multisend(self.settle_multisend(opened)?);
        self.group(self.usual_policy())?;
        Ok(())
    }

    /// Changes the tree of this communicator's multi-send, or the component that copies; the same
    /// on all ranks. Returns what this rank got. Collective; no rank returns before all have taken
    /// part. Has no effect if the job does not multi-send, or the communicator is on one node. If a
    /// rank gets an error, the others do not notice, and this communicator must not multi-send any
    /// more.
    ///
    /// # Errors
    /// [`Error::MultiSend`] for a tree that is not possible, [`Error::NoNic`] if [`Cloning::Nic`]
    /// or [`Cloning::Host`] is required and this rank gets no slot, [`Error::PeerFailed`].
    pub fn use_multisend_tree(
        &self,
        tree: Tree,
        cloning: Cloning,
    ) -> Result<Option<MultiSendUse>, Error> {
        // No rank may send by the old tree while another already has the new one.
        self.meet()?;
        let opened = self.open_multisend_by(tree, cloning);
        // A rank that got no slot also takes part, so that no other rank waits for it.
        self.meet()?;
        let usage = opened?;
        if self.inner.id == CommunicatorId(0) && usage.is_some() {
            self.job().describe_multisend(usage.clone());
        }
        Ok(usage)
    }

    /// Switches to the tree that fits a measured `lambda`, the same on all ranks, or to the default
    /// tree, if the job's multi-send is left to the library and that tree differs from the present
    /// one for this number of nodes. Collective; on the communicator of all ranks.
    pub(super) fn use_lambda(&self, lambda: Option<Lambda>) -> Result<(), Error> {
        let job = self.job();
        let present = job.multisend().filter(|_| job.config.multisend == MultiSend::Auto);
        let Some(present) = present else { return Ok(()) };
        let tree = tree_of(lambda);
        let shape = |tree| TreeTable::new(tree, self.nodes().count()).ok();
        if shape(tree) != shape(present.tree) {
            self.use_multisend_tree(tree, Cloning::Auto)?;
        }
        Ok(())
    }

    /// The component that makes the copies, according to the job's settings.
    pub(super) fn cloning(&self) -> Cloning {
        self.multisend_tree().1
    }

    /// Opens this communicator's multi-send on this rank, if the job uses it; returns its form.
    fn open_multisend(&self) -> Result<Option<MultiSendUse>, Error> {
        let (tree, cloning) = self.multisend_tree();
        self.open_multisend_by(tree, cloning)
    }

    /// As [`Self::open_multisend`], but a slot that is not required is opened later.
    pub(crate) fn open_multisend_late(&self) -> Result<(), Error> {
        let (tree, cloning) = self.multisend_tree();
        let opened = match cloning {
            Cloning::Auto => self.open_multisend_by(tree, Cloning::Loop)?,
            _ => self.open_multisend_by(tree, cloning)?,
        };
        if opened.is_some() && cloning == Cloning::Auto {
            self.inner.late_slot.wait_for(Some(tree));
        }
        Ok(())
    }

    /// Returns an error on all ranks if one of them requires a slot and got none. Collective: each
    /// rank decides itself who makes its copies, so all ranks take part if a tree is configured.
    pub(crate) fn settle_multisend<T>(&self, opened: Result<T, Error>) -> Result<T, Error> {
        let may_be_insisted_on = matches!(self.job().config.multisend, MultiSend::Tree(..));
        if !may_be_insisted_on || !self.job().has_multisend() || self.nodes().count() < 2 {
            return opened;
        }
        let opened = opened.map_err(|error| match error {
            Error::NoNic { reason } => reason,
            error => error.to_string(),
        });
        let told = self.first_obstacle(opened.as_ref().err().map(String::as_str))?;
        told.map_or(opened, Err).map_err(|reason| Error::NoNic { reason })
    }

    /// Counts a broadcast of `bytes` bytes that is to be multi-sent; after several, requests this
    /// rank's slot.
    pub(super) fn count_multisend(&self, bytes: usize) {
        let Some(tree) = self.inner.late_slot.count(bytes) else { return };
        // The opening thread hands it over: an open slot duplicates this rank's copies until then.
        let give = self.job().engine.multisend_slot_giver(self.inner.id, true);
        let plan = self.multisend_slot(tree, self.own_node(), true);
        // Without a slot, the rank continues in user space.
        if let Ok(thread) = plan.and_then(|plan| self.begin_slot(plan, give)) {
            *self.inner.late_slot.lock() = Late::Opening(thread);
        }
    }

    fn own_node(&self) -> u32 {
        self.nodes().node_of(self.rank()).0
    }

    fn open_multisend_by(
        &self,
        tree: Tree,
        cloning: Cloning,
    ) -> Result<Option<MultiSendUse>, Error> {
        let job = self.job();
        self.inner.late_slot.wait_for(None);
        let nodes = self.nodes().by_node().to_vec();
        if !job.has_multisend() || nodes.len() < 2 {
            return Ok(None);
        }
        let table = TreeTable::new(tree, nodes.len() as u32)
            .map_err(|error| Error::MultiSend { reason: error.to_string() })?;
        // A slot has the communicator's name, so the old one is closed first.
        job.engine.close_multisend(self.inner.id);
        let own = self.own_node();
        let slot = match cloning {
            Cloning::Loop => Err("switched off".to_owned()),
            _ => self
                .multisend_slot(tree, own, cloning != Cloning::Host)
                .and_then(|plan| self.open_slot(plan)),
        };
        if let (Cloning::Nic | Cloning::Host, Err(reason)) = (cloning, &slot) {
            return Err(Error::NoNic { reason: reason.clone() });
        }
        let is_in_kernel = slot.is_ok();
        let kernel_forwards = is_in_kernel && cloning != Cloning::Host;
        let reason = slot.as_ref().err().cloned().unwrap_or_default();
        job.engine.open_multisend(MultiSendPlan {
            communicator: self.inner.id,
            nodes,
            tree: table,
            own,
            slot: slot.ok(),
            slot_forwards: kernel_forwards,
        });
        Ok(Some(MultiSendUse { tree, is_in_kernel, kernel_forwards, reason }))
    }

    /// The tree, the same on all ranks, and the component that makes the copies.
    fn multisend_tree(&self) -> (Tree, Cloning) {
        match self.job().config.multisend {
            MultiSend::Tree(tree, cloning) => (tree, cloning),
            MultiSend::Auto | MultiSend::Off => {
                let lambda = self.job().figures().and_then(|figures| figures.lambda());
                (tree_of(lambda), Cloning::Auto)
            }
        }
    }

    fn multisend_slot(&self, tree: Tree, own: u32, forwards: bool) -> Result<SlotPlan, String> {
        let job = self.job();
        let addresses = job.engine.nics();
        let address = |rank: Rank| {
            let known = addresses.get(rank.index()).map(|nic| nic.multisend);
            known.ok_or_else(|| "the ports of the other ranks are not known".to_owned())
        };
        let nodes = self.nodes().by_node();
        let me = self.job_rank(self.rank());
        // Packets go to the first rank of each other node.
        let peer = |(index, node): (u32, &Vec<Rank>)| {
            let rank = if index == own { me } else { node[0] };
            address(rank).map(|address| (rank.0, address))
        };
        let peers: Result<Vec<(u32, SocketAddr)>, String> = (0..).zip(nodes).map(peer).collect();
        let members = (0..).zip(nodes).flat_map(|(index, node)| {
            node.iter().map(move |rank| MemberPlan {
                rank: rank.0,
                index,
                key: job.engine.sender_key(*rank),
            })
        });
        Ok(SlotPlan {
            job: job.engine.job(),
            communicator: self.inner.id.0,
            channel: 0,
            rank: me.0,
            own,
            socket: address(me)?,
            doorbell: None,
            peers: peers?,
            members: members.collect(),
            group: None,
            group_ttl: 1,
            barrier: None,
            tree: Some(tree.to_string()),
            forwards: forwards && nodes[own as usize][0] == me,
            by_mac: false,
        })
    }
}

/// The tree that fits a measured lambda best [MS-R19].
fn tree_of(lambda: Option<Lambda>) -> Tree {
    Tree::Postal { lambda: lambda.unwrap_or(LAMBDA) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::two_nodes::on_two_nodes;

    #[test]
    fn failed_slot_allocation_is_reported_to_ranks_with_a_slot() {
        let insisting = |config: &mut crate::Config| {
            // Only one of them requires a slot.
            let cloning = if config.rank == 1 { Cloning::Nic } else { Cloning::Auto };
            config.multisend = MultiSend::Tree(Tree::Flat, cloning);
        };
        on_two_nodes(insisting, |world| {
            assert!(world.settle_multisend(Ok(())).is_ok());
            world.job().allow_multisend();
            let own = match world.rank() {
                0 => Ok(()),
                _ => Err(Error::NoNic { reason: "none is left".to_owned() }),
            };
            let told = world.settle_multisend(own);
            let Err(Error::NoNic { reason }) = told else { panic!("{told:?}") };
            assert_eq!(reason, "rank 1: none is left");
        });
    }

    #[test]
    fn multisend_settings_round_trip_as_text() {
        assert_eq!("auto".parse(), Ok(MultiSend::Auto));
        assert_eq!("off".parse(), Ok(MultiSend::Off));
        assert_eq!("flat".parse(), Ok(MultiSend::Tree(Tree::Flat, Cloning::Auto)));
        assert_eq!("binomial:host".parse(), Ok(MultiSend::Tree(Tree::Binomial, Cloning::Host)));
        for text in ["auto", "off", "flat", "postal=2.5:nic", "kary=3:host", "chain:loop"] {
            assert_eq!(text.parse().map(|read: MultiSend| read.to_string()), Ok(text.to_owned()));
        }
        for text in ["", "tree", "flat:", "flat:kernel"] {
            assert!(text.parse::<MultiSend>().is_err(), "{text}");
        }
    }
}
