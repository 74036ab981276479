//! The kernel NIC as a process obtains it: lent by the node's agent, or loaded by the process
//! itself.
//!
//! The agent is tried first, because it has already loaded and attached the firmware and serves
//! ordinary users. Without one, a process with CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN loads the
//! firmware itself: once, when the first NIC is obtained, and for as long as a NIC or a slot
//! exists. A process that has neither gets the reasons in words.

use crate::agent::interfaces;
use crate::agent::{AgentError, Client, Lent, LentQueue};
use crate::lock::lock;
use crate::signals::without_signals;
use crate::{Kernel, NicError, Page, Queue, QueuePlan, SlotPlan};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, Weak};

/// The form of the kernel NIC that is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Preference {
    /// The agent's, else one that this process loads.
    Any,
    /// One that this process loads.
    Kernel,
    /// The agent's.
    Agent,
}

/// The form of a NIC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NicForm {
    /// Loaded by this process.
    Kernel,
    /// Slots are lent by the node's agent.
    Agent,
}

/// Why this process has no kernel NIC.
#[derive(Debug)]
pub struct Unavailable {
    /// One reason for each form that was wanted, in the order tried.
    pub reasons: Vec<NicError>,
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, reason) in self.reasons.iter().enumerate() {
            write!(f, "{}{reason}", if number == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

impl std::error::Error for Unavailable {}

/// Access to the kernel NIC.
pub struct Nic(Access);

enum Access {
    Kernel(Arc<Loaded>),
    Agent(Arc<Client>),
}

/// A slot of the kernel NIC; returned when dropped.
pub struct OpenSlot(Slot);

enum Slot {
    Own { kernel: Arc<Loaded>, number: u32, page: Page },
    Lent(Lent),
}

impl Nic {
    /// Obtains access in the calling thread's network namespace.
    ///
    /// # Errors
    /// [`Unavailable`] with a reason for each form that was wanted.
    pub fn obtain(preference: Preference) -> Result<Self, Unavailable> {
        let mut reasons = Vec::new();
        if preference != Preference::Kernel {
            match connect() {
                Ok(client) => return Ok(Self(Access::Agent(client))),
                Err(error) => reasons.push(NicError::Agent(error)),
            }
        }
        if preference != Preference::Agent {
            match load() {
                Ok(kernel) => return Ok(Self(Access::Kernel(kernel))),
                Err(error) => reasons.push(error),
            }
        }
        Err(Unavailable { reasons })
    }

    /// The NIC's form.
    pub fn form(&self) -> NicForm {
        match self.0 {
            Access::Kernel(_) => NicForm::Kernel,
            Access::Agent(_) => NicForm::Agent,
        }
    }

    /// Opens a slot. `socket` is bound to the plan's address, shares its port with no other socket,
    /// and must stay open as long as the slot; `group` likewise for the plan's group, but its port
    /// may be shared.
    ///
    /// # Errors
    /// [`NicError`].
    pub fn open(
        &mut self,
        plan: &SlotPlan,
        socket: BorrowedFd<'_>,
        group: Option<BorrowedFd<'_>>,
    ) -> Result<OpenSlot, NicError> {
        match &mut self.0 {
            Access::Kernel(kernel) => open_own(kernel, plan, socket),
            Access::Agent(client) => {
                if client.is_gone() {
                    // The agent was restarted; slots that it lent before are lost.
                    *client = connect()?;
                }
                client.lend(plan, socket, group).map(|lent| OpenSlot(Slot::Lent(lent)))
            }
        }
    }

    /// Opens a receive queue. `sockets` are the plan's, then its group's, and stay open as long as
    /// the queue.
    ///
    /// # Errors
    /// [`NicError`].
    pub fn open_queue(
        &mut self,
        plan: &QueuePlan,
        sockets: &[BorrowedFd<'_>],
    ) -> Result<OpenQueue, NicError> {
        match &self.0 {
            Access::Kernel(kernel) => open_own_queue(kernel, plan),
            Access::Agent(client) => {
                let lent = client.lend_queue(plan, sockets)?;
                Ok(OpenQueue(HeldQueue::Lent(lent)))
            }
        }
    }
}

/// A receive queue of the kernel NIC; when it is dropped, packets go to the sockets again.
pub struct OpenQueue(HeldQueue);

enum HeldQueue {
    /// `entry` is present until the drop.
    Own {
        entry: Option<QueueEntry>,
        queue: Queue,
    },
    Lent(LentQueue),
}

impl OpenQueue {
    /// The queue.
    pub fn queue(&self) -> &Queue {
        match &self.0 {
            HeldQueue::Own { queue, .. } => queue,
            HeldQueue::Lent(lent) => &lent.queue,
        }
    }

    /// The queue, for reading.
    pub fn queue_mut(&mut self) -> &mut Queue {
        match &mut self.0 {
            HeldQueue::Own { queue, .. } => queue,
            HeldQueue::Lent(lent) => &mut lent.queue,
        }
    }
}

/// The entry by which packets find a queue.
struct QueueEntry {
    kernel: Arc<Loaded>,
    number: u32,
}

impl Drop for QueueEntry {
    fn drop(&mut self) {
        // If nothing else is open, the whole firmware is unloaded.
        if Arc::strong_count(&self.kernel) > 1 {
            self.kernel.close(self.number);
        }
    }
}

impl Drop for OpenQueue {
    fn drop(&mut self) {
        let HeldQueue::Own { entry, .. } = &mut self.0 else { return };
        match entry.take() {
            Some(entry) if entry.kernel.is_held_by_descriptors() => drop_on_thread(entry),
            // It may hold the last of the firmware, which must be detached before the process ends.
            entry => drop(entry),
        }
    }
}

fn open_own_queue(kernel: &Arc<Loaded>, plan: &QueuePlan) -> Result<OpenQueue, NicError> {
    plan.check()?;
    let interface = interface_of(plan.sockets[0].ip())?;
    kernel.attach(interface)?;
    let number = kernel.open_queue(plan)?;
    match Queue::map(kernel.queue(number).expect("the queue is open").as_fd()) {
        Ok(queue) => {
            let entry = Some(QueueEntry { kernel: Arc::clone(kernel), number });
            Ok(OpenQueue(HeldQueue::Own { entry, queue }))
        }
        Err(error) => {
            kernel.close(number);
            Err(error)
        }
    }
}

/// The Ethernet interface with an address.
fn interface_of(address: IpAddr) -> Result<u32, NicError> {
    let what = "cannot list the interfaces";
    let interface = interfaces::with_address(address);
    let interface = interface.map_err(|source| NicError::System { what, source })?;
    let interface = interface.filter(interfaces::Interface::is_usable);
    let what = "no Ethernet interface has the socket's address";
    interface.map(|interface| interface.index).ok_or(NicError::Plan { what })
}

fn open_own(
    kernel: &Arc<Loaded>,
    plan: &SlotPlan,
    socket: BorrowedFd<'_>,
) -> Result<OpenSlot, NicError> {
    plan.check()?;
    let interface = interface_of(plan.socket.ip())?;
    kernel.attach(interface)?;
    let number = kernel.open(plan, interface, Some(socket))?;
    match Page::map(kernel.page(number).expect("the slot is open").as_fd()) {
        Ok(page) => Ok(OpenSlot(Slot::Own { kernel: Arc::clone(kernel), number, page })),
        Err(error) => {
            kernel.close(number);
            Err(error)
        }
    }
}

impl OpenSlot {
    /// The slot's page.
    pub fn page(&self) -> &Page {
        match &self.0 {
            Slot::Own { page, .. } => page,
            Slot::Lent(lent) => lent.page(),
        }
    }

    /// True if no packet finds the slot any more, because the agent that lent it has taken it back
    /// or has gone. Costs a system call: call it only when a barrier takes long.
    pub fn is_lost(&self) -> bool {
        match &self.0 {
            Slot::Own { .. } => false,
            Slot::Lent(lent) => lent.is_lost(),
        }
    }

    /// Who has loaded the firmware.
    pub fn form(&self) -> NicForm {
        match self.0 {
            Slot::Own { .. } => NicForm::Kernel,
            Slot::Lent(_) => NicForm::Agent,
        }
    }
}

impl Drop for OpenSlot {
    fn drop(&mut self) {
        if let Slot::Own { kernel, number, .. } = &self.0 {
            kernel.close(*number);
        }
    }
}

/// Firmware that this process has loaded; dropping it does not wait for the detaching, unless
/// filters have to be removed.
struct Loaded(Option<Kernel>);

impl Deref for Loaded {
    type Target = Kernel;

    fn deref(&self) -> &Kernel {
        self.0.as_ref().expect("it is there until it is dropped")
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        let kernel = self.0.take();
        // A filter that is not removed would stay.
        if kernel.as_ref().is_some_and(Kernel::is_held_by_descriptors) {
            drop_on_thread(kernel);
        }
    }
}

/// Drops a value on a thread of its own, because the kernel waits for tens of milliseconds; on this
/// thread if no other can be started. The process does not end before the kernel is done.
fn drop_on_thread(value: impl Send + 'static) {
    let thread = std::thread::Builder::new().name("omnes-close".to_owned());
    let _ = without_signals(|| thread.spawn(move || drop(value)));
}

/// A network namespace, identified by device and inode of the kernel's file for it.
type Space = (u64, u64);

/// What this process has loaded in each network namespace, whose interface indices are its own.
static LOADED: Mutex<BTreeMap<Space, Weak<Loaded>>> = Mutex::new(BTreeMap::new());

/// This process's connection to the agent of each namespace.
static CONNECTED: Mutex<BTreeMap<Space, Weak<Client>>> = Mutex::new(BTreeMap::new());

/// The calling thread's network namespace.
fn space() -> io::Result<Space> {
    let space = std::fs::metadata("/proc/thread-self/ns/net")?;
    Ok((space.dev(), space.ino()))
}

/// The firmware that this process has loaded for the calling thread's network namespace; loads it
/// if necessary.
fn load() -> Result<Arc<Loaded>, NicError> {
    let what = "cannot look at the network namespace";
    let space = space().map_err(|source| NicError::System { what, source })?;
    let mut loaded = lock(&LOADED);
    loaded.retain(|_, kernel| kernel.strong_count() > 0);
    let entry = loaded.entry(space).or_default();
    if let Some(kernel) = entry.upgrade() {
        return Ok(kernel);
    }
    let kernel = Arc::new(Loaded(Some(Kernel::load()?)));
    *entry = Arc::downgrade(&kernel);
    Ok(kernel)
}

/// The connection to the agent of the calling thread's network namespace; made now if no live
/// connection exists.
fn connect() -> Result<Arc<Client>, AgentError> {
    let what = "cannot look at the network namespace";
    let space = space().map_err(|source| AgentError::System { what, source })?;
    let mut connected = lock(&CONNECTED);
    connected.retain(|_, client| client.strong_count() > 0);
    let entry = connected.entry(space).or_default();
    if let Some(client) = entry.upgrade().filter(|client| !client.is_gone()) {
        return Ok(client);
    }
    let client = Arc::new(Client::connect()?);
    *entry = Arc::downgrade(&client);
    Ok(client)
}
