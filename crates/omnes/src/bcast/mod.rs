//! Broadcast: the root's bytes, delivered to every rank.
//!
//! | module | what it does |
//! |---|---|
//! | `choice` | chooses the algorithm if the caller names none |
//! | `part` | the part of one rank: from whom it gets the data, to whom it forwards them |
//! | `nodes` | which ranks share a node; the groups in which a communicator multicasts |
//! | `multisend` | replaces multicast where it does not work |
//! | `probe` | whether multicast works on this network |
//! | `tune` | the cost of each algorithm on this network |
//!
//! Source: multicast made reliable [BC-R1]; binomial with store and forward is its "Original"
//! [BC-R25]; a rank that forwards while it receives applies PM's immediate sending [PM-R7] from
//! rank to rank. Cost: by multicast one packet from the root per packet of the message, however
//! many nodes there are; down a tree one message per rank except the root, and with pipelined
//! forwarding each level of the tree costs one [`PIPELINE_BYTES`] piece instead of the whole
//! message.

mod choice;
mod multisend;
mod nodes;
mod part;
mod probe;
pub mod tune;

pub(crate) use choice::LatestChoice;
pub(crate) use multisend::LateSlot;
pub use multisend::{Cloning, MultiSend, MultiSendUse};
pub(crate) use nodes::Nodes;
pub use omnes_proto::algorithm::{BcastAlgorithm, BcastAlgorithmError, Forwarding};
pub(crate) use part::{Origin, Part, check_tree, within_node};

use crate::collective::Collective;
use crate::communicator::{Bytes, Communicator, Purpose, Unwaited, check_length};
use crate::compare::Call;
use crate::error::Error;
use omnes_net::{Cast, Disruption, Operation, Relayed, WhenFull};
use omnes_proto::algorithm::PIPELINE_BYTES;
use omnes_wire::Rank;

/// Operations of a broadcast in progress.
pub(crate) struct Started {
    /// The receive; `None` at the root.
    pub(crate) receive: Option<Operation>,
    /// The multicast and the messages to children.
    pub(crate) sends: Vec<Operation>,
}

/// Ranks that wait for this one in a broadcast of `length` bytes. If the promise is dropped, for
/// instance by a panic, it tells them that no data will arrive.
struct Promise<'a> {
    communicator: &'a Communicator,
    children: &'a [Rank],
    length: usize,
}

impl Promise<'_> {
    /// Ends the promise: the data that these ranks wait for have arrived at this rank, or have not.
    fn settle<T>(self, outcome: &Result<T, Error>) {
        if outcome.as_ref().err().is_none_or(Error::is_detected_by_all) {
            std::mem::forget(self);
        }
    }
}

impl Drop for Promise<'_> {
    fn drop(&mut self) {
        let Self { communicator, children, length } = *self;
        children.iter().for_each(|child| communicator.withhold(child.0, length));
    }
}

impl Communicator {
    /// Broadcasts the root's `buffer` to the `buffer` of all ranks, which must have the same length
    /// on all of them.
    ///
    /// # Errors
    /// [`Error::RankOutOfRange`] for a root that does not exist, [`Error::Truncated`] if the root
    /// sent more than fits, [`Error::LengthMismatch`] if it sent less, [`Error::PeerFailed`] if a
    /// member has failed, [`Error::PeerLeft`] if one has left the job.
    pub fn bcast(&self, root: u32, buffer: &mut [u8]) -> Result<(), Error> {
        self.bcast_with(root, buffer, self.usual_bcast(buffer.len()))
    }

    /// The algorithm for a broadcast of `bytes` bytes if the caller names none.
    pub(crate) fn usual_bcast(&self, bytes: usize) -> BcastAlgorithm {
        let choose = || self.inner.latest_choice.of(self.situation(bytes));
        self.job().config.bcast.unwrap_or_else(choose)
    }

    /// As [`Self::bcast`], with the given algorithm, which must be the same on all ranks. The first
    /// use of a multicast policy on a communicator costs an additional barrier.
    ///
    /// # Errors
    /// As [`Self::bcast`]; [`Error::Algorithm`] for one with invalid parameters,
    /// [`Error::TooManySchemes`] for more policies than a communicator can distinguish.
    pub fn bcast_with(
        &self,
        root: u32,
        buffer: &mut [u8],
        algorithm: BcastAlgorithm,
    ) -> Result<(), Error> {
        self.check_rank(root)?;
        self.begin(Call::of(Collective::Bcast).with_bytes(buffer.len()).with_root(root))?;
        self.broadcast(root, buffer, algorithm)
    }

    /// As [`Self::bcast_with`]; may also be used within a collective in progress.
    pub(crate) fn broadcast(
        &self,
        root: u32,
        buffer: &mut [u8],
        algorithm: BcastAlgorithm,
    ) -> Result<(), Error> {
        // SAFETY: the buffer outlives the call and is not accessed otherwise.
        unsafe { self.broadcast_bytes(root, Bytes::of_mut(buffer), algorithm) }
    }

    /// As [`Self::broadcast`], for memory that is only read at the root.
    ///
    /// # Safety
    /// `data` must stay valid until this returns, and not be accessed otherwise; at the root others
    /// may read it.
    pub(crate) unsafe fn broadcast_bytes(
        &self,
        root: u32,
        data: Bytes,
        algorithm: BcastAlgorithm,
    ) -> Result<(), Error> {
        if let BcastAlgorithm::Multicast(policy) = algorithm {
            self.open_together(policy)?;
        }
        let part = self.part(root, data.length, algorithm)?;
        // A short message has no part that could be forwarded before the whole.
        let is_whole = part.forwarding == Forwarding::Store || data.length as u64 <= PIPELINE_BYTES;
        if is_whole && part.origin != Origin::Itself {
            let promise =
                Promise { communicator: self, children: &part.children, length: data.length };
            // SAFETY: promised by the caller; it is waited for.
            let received = unsafe { self.receive_whole(&part, data) };
            promise.settle(&received);
            received?;
            // SAFETY: all sends are waited for below, and nothing changes the bytes meanwhile.
            let (sends, started) = unsafe { self.start_sends(&part.children, data, data.length) };
            let waited = self.wait_for_all(&sends);
            return started.and(waited);
        }
        // SAFETY: `finish` ends or releases all operations before the buffer is reused.
        let started = unsafe { self.start(&part, data, WhenFull::Wait)? };
        self.finish(started, data.length)
    }

    /// Receives the message and waits for it.
    ///
    /// # Safety
    /// `data` must stay valid, and not be accessed otherwise, until this returns.
    unsafe fn receive_whole(&self, part: &Part, data: Bytes) -> Result<(), Error> {
        // SAFETY: promised by the caller; the wait ends or releases the operation.
        let receive = unsafe { self.start_origin(part, data)? };
        let bytes = receive.map_or(Ok(data.length as u64), |receive| {
            self.wait_for(receive).map(|completion| completion.bytes)
        });
        check_length(bytes?, data.length)
    }

    /// Starts this rank's part; received data are forwarded to the children automatically.
    /// `when_full` determines whether the call may wait.
    ///
    /// # Safety
    /// `data` must stay valid, and not be accessed otherwise, until all operations have ended or
    /// were released.
    pub(crate) unsafe fn start(
        &self,
        part: &Part,
        data: Bytes,
        when_full: WhenFull,
    ) -> Result<Started, Error> {
        let engine = self.engine_to_start()?;
        let promise = Promise { communicator: self, children: &part.children, length: data.length };
        // SAFETY: promised by the caller.
        let receive = unsafe { self.start_origin(part, data) };
        promise.settle(&receive);
        let receive = receive?;
        let is_root = part.origin == Origin::Itself;
        let mut cast = Ok(None);
        if let Some((group, hold)) = part.cast {
            let concerns = |gone: Disruption<'_>| self.breaks_collective(gone);
            let bytes = data.length as u64;
            let message = Cast { group, hold, base: data.base, bytes, when_full };
            // SAFETY: promised by the caller.
            cast = unsafe { engine.broadcast(message, concerns) };
        }
        let available = if is_root { data.length } else { 0 };
        // SAFETY: promised by the caller; bytes that are not available yet are waited for.
        let (mut sends, started) = unsafe { self.start_sends(&part.children, data, available) };
        let cast = cast.map_err(|error| self.note_error(error));
        let outcome = cast.map(|operation| sends.extend(operation)).and(started);
        if let Err(error) = outcome {
            self.abandon_started(&Started { receive, sends });
            return Err(error);
        }
        if let (Some(receive), false) = (receive, sends.is_empty()) {
            let total = data.length as u64;
            let piece = match part.forwarding {
                Forwarding::Store => total,
                Forwarding::Pipelined => PIPELINE_BYTES,
            };
            self.job().engine.relay(receive, &sends, Relayed { total, piece });
        }
        Ok(Started { receive, sends })
    }

    /// Starts the receive, unless this rank is the root.
    ///
    /// # Safety
    /// As for [`Self::start`].
    unsafe fn start_origin(&self, part: &Part, data: Bytes) -> Result<Option<Operation>, Error> {
        match part.origin {
            Origin::Itself => Ok(None),
            Origin::Channel(parent) => {
                // SAFETY: promised by the caller.
                unsafe { self.start_receive(parent.0, Purpose::Bcast, data).map(Some) }
            }
            Origin::Multicast(group) => {
                let (root, bytes) = (self.job_rank(part.root), data.length as u64);
                let engine = self.engine_to_start()?;
                // SAFETY: promised by the caller.
                let started = unsafe { engine.receive_broadcast(group, root, data.base, bytes) };
                started.map(Some).map_err(|error| self.note_error(error))
            }
        }
    }

    /// Starts a message to each child. Returns the messages that were started, also after an error.
    ///
    /// # Safety
    /// `data` must stay valid until all messages that were started have ended or were released, and
    /// bytes that are available must not change.
    unsafe fn start_sends(
        &self,
        children: &[Rank],
        data: Bytes,
        available: usize,
    ) -> (Vec<Operation>, Result<(), Error>) {
        let mut sends = Vec::with_capacity(children.len());
        for child in children {
            // SAFETY: promised by the caller.
            match unsafe { self.start_send(child.0, Purpose::Bcast, data, available) } {
                Ok(send) => sends.extend(send),
                Err(error) => return (sends, Err(error)),
            }
        }
        (sends, Ok(()))
    }

    /// Waits for the end of this rank's part in a broadcast of `length` bytes.
    pub(crate) fn finish(&self, started: Started, length: usize) -> Result<(), Error> {
        let Started { receive, sends } = started;
        // Data that did not arrive are never forwarded, so these messages cannot end by themselves.
        let sends = Unwaited { communicator: self, operations: &sends };
        let received = receive.map(|receive| self.wait_for(receive)).transpose()?;
        received.map_or(Ok(()), |it| check_length(it.bytes, length))?;
        sends.wait()
    }

    /// Releases the operations in progress, so that their memory is free; data already available
    /// are still sent.
    pub(crate) fn release(&self, started: &Started) {
        let operations = started.receive.iter().chain(&started.sends);
        operations.for_each(|operation| drop(self.job().engine.release(*operation)));
    }

    /// As [`Self::release`], after an error; ranks that wait for much of the data are notified.
    pub(crate) fn abandon_started(&self, started: &Started) {
        let operations = started.receive.iter().chain(&started.sends);
        operations.for_each(|operation| self.job().engine.abandon(*operation));
    }
}
