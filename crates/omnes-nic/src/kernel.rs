//! The firmware in the kernel: loading it, attaching it, opening slots and queues.

mod queues;

use crate::agent::interfaces;
use crate::attach::{Attachment, Direction, attach};
use crate::error::{NicError, checked};
use crate::frame;
use crate::kernel::queues::OpenedQueue;
use crate::lock::lock;
use crate::log;
use crate::plan::SlotPlan;
use crate::signals::without_signals;
use libbpf_rs::{Map, MapCore, MapFlags, Object, ObjectBuilder};
use omnes_firmware::slot::{
    CLASS_V6, Member, MemberKey, PEER_GROUP, Page as PageLayout, Peer, PortKey, SENDERS,
    SLOT_BY_MAC, SLOT_FORWARDS, SLOTS_MAX, STATE_BYTES, Slot,
};
use omnes_firmware::{KERNEL_GROUP_MAX, Key};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex};

/// The compiled object; empty if the build had no clang with BPF support.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/nic.bpf.o"));

/// Loaded firmware, attached to some interfaces; unloaded when this value is dropped.
///
/// The kernel waits for all of its processors, 5 to 20 ms, after each change of a link or of a map
/// of maps. Opening waits for that, and so does closing a queue, but closing a slot does not. While
/// one thread waits, another one is blocked only from attaching.
pub struct Kernel {
    object: Object,
    attachments: Mutex<BTreeMap<u32, [Attachment; 2]>>,
    /// Never locked while the kernel waits.
    opened: Mutex<Opened>,
}

/// Open slots and queues, by number.
#[derive(Default)]
struct Opened {
    slots: BTreeMap<u32, OpenedSlot>,
    queues: BTreeMap<u32, OpenedQueue>,
}

/// What must be undone to close a slot.
struct OpenedSlot {
    ports: Vec<PortKey>,
    members: Vec<u32>,
    page: Arc<OwnedFd>,
    interface: u32,
}

impl Kernel {
    /// Loads the firmware, which costs some 30 ms of a core in the verifier.
    ///
    /// # Errors
    /// [`NicError::NoFirmware`], [`NicError::NotPermitted`] or [`NicError::Refused`].
    pub fn load() -> Result<Self, NicError> {
        if OBJECT.is_empty() {
            return Err(NicError::NoFirmware);
        }
        Self::load_object(OBJECT)
    }

    fn load_object(bytes: &[u8]) -> Result<Self, NicError> {
        let load = || ObjectBuilder::default().open_memory(bytes).and_then(|object| object.load());
        let (loaded, said) = log::listening(load);
        // The verifier denies permission for a program's mistakes, too, but then gives its reasons.
        let has_verified = said.contains("PROG LOAD LOG");
        let object = loaded.map_err(|error| match error.kind() {
            libbpf_rs::ErrorKind::PermissionDenied if !has_verified => NicError::NotPermitted,
            _ => NicError::Refused { reason: format!("{error:#}: {said}") },
        })?;
        Ok(Self { object, attachments: Mutex::default(), opened: Mutex::default() })
    }

    /// Attaches the firmware to an interface, unless it is attached already.
    ///
    /// # Errors
    /// [`NicError::Attach`].
    pub fn attach(&self, interface: u32) -> Result<(), NicError> {
        let mut attachments = lock(&self.attachments);
        if attachments.contains_key(&interface) {
            return Ok(());
        }
        let ingress = attach(self.program("nic_ingress"), interface, Direction::Ingress)?;
        let egress = attach(self.program("nic_egress"), interface, Direction::Egress)?;
        attachments.insert(interface, [ingress, egress]);
        Ok(())
    }

    /// Detaches the firmware from an interface. Slots there stay open, but no packet finds them.
    pub fn detach(&self, interface: u32) {
        lock(&self.attachments).remove(&interface);
    }

    /// True if every attachment is held by a descriptor, so that none outlives the process, however
    /// it ends.
    pub(crate) fn is_held_by_descriptors(&self) -> bool {
        let attachments = lock(&self.attachments);
        attachments.values().flatten().all(|it| matches!(it, Attachment::Tcx(_)))
    }

    /// Opens a slot on an interface that the firmware is attached to; returns its number. A packet
    /// that the host sends from the plan's address is for the slot only if it leaves through
    /// `socket` or the plan's doorbell; without `socket`, whichever socket it leaves through, as
    /// for packets of test runs.
    ///
    /// # Errors
    /// [`NicError::Plan`] for an invalid plan, [`NicError::Taken`], [`NicError::Full`],
    /// [`NicError::System`].
    pub fn open(
        &self,
        plan: &SlotPlan,
        interface: u32,
        socket: Option<BorrowedFd<'_>>,
    ) -> Result<u32, NicError> {
        plan.check()?;
        let senders = socket.map_or(Ok([0; SENDERS]), |socket| senders(plan, socket))?;
        let slot = describe(plan, interface, senders)?;
        let page = inner_map(c"nic_page", size_of::<PageLayout>(), 1, libbpf_sys::BPF_F_MMAPABLE)?;
        let peers = inner_map(c"nic_peers_one", size_of::<Peer>(), KERNEL_GROUP_MAX as u32 + 1, 0)?;
        self.fill_peers(plan, interface, peers.as_fd())?;
        let page = Arc::new(page);
        let number = self.reserve(plan, Arc::clone(&page), interface)?;
        let opened = self
            .install(number, page.as_fd(), peers.as_fd())
            .and_then(|()| self.open_to_packets(number, plan, &slot));
        if opened.is_err() {
            self.close(number);
        }
        opened.map(|()| number)
    }

    /// Reserves a number for a slot that is being opened.
    fn reserve(
        &self,
        plan: &SlotPlan,
        page: Arc<OwnedFd>,
        interface: u32,
    ) -> Result<u32, NicError> {
        let slots = &mut lock(&self.opened).slots;
        let full = NicError::Full { limit: SLOTS_MAX };
        let number = (0..SLOTS_MAX).find(|number| !slots.contains_key(number)).ok_or(full)?;
        let ports = port_keys(plan);
        if ports.iter().any(|port| slots.values().any(|slot| slot.ports.contains(port))) {
            let (job, communicator, port) = (plan.job, plan.communicator, plan.socket.port());
            return Err(NicError::Taken { job, communicator, port });
        }
        let members = plan.members.iter().map(|member| member.rank).collect();
        slots.insert(number, OpenedSlot { ports, members, page, interface });
        Ok(number)
    }

    /// Installs a slot's own maps in place of those that the number's previous slot has left. The
    /// kernel waits until no program uses the old maps any more, for both at the same time.
    fn install(
        &self,
        number: u32,
        page: BorrowedFd<'_>,
        peers: BorrowedFd<'_>,
    ) -> Result<(), NicError> {
        let put = |map: &str, inner: BorrowedFd<'_>| {
            self.update(map, &number.to_ne_bytes(), &inner.as_raw_fd().to_ne_bytes())
        };
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("omnes-slot".to_owned());
            let thread = without_signals(|| thread.spawn_scoped(scope, || put("nic_peers", peers)));
            put("nic_pages", page)?;
            match thread.map(std::thread::ScopedJoinHandle::join) {
                Ok(Ok(outcome)) => outcome,
                // Without a thread: one after the other.
                Ok(Err(_)) | Err(_) => put("nic_peers", peers),
            }
        })
    }

    /// Lets packets find the slot, whose maps no program uses yet.
    fn open_to_packets(&self, number: u32, plan: &SlotPlan, slot: &Slot) -> Result<(), NicError> {
        self.update("nic_slots", &number.to_ne_bytes(), bytes(slot))?;
        self.update("nic_states", &number.to_ne_bytes(), &[0; STATE_BYTES])?;
        for member in &plan.members {
            let key = MemberKey { slot: number, rank: member.rank };
            let value = Member { index: member.index, reserved: 0, key: Key::new(member.key) };
            self.update("nic_members", bytes(&key), bytes(&value))?;
        }
        for port in port_keys(plan) {
            self.update("nic_ports", bytes(&port), &number.to_ne_bytes())?;
        }
        Ok(())
    }

    /// Closes a slot or a queue: packets do not find it any more. A slot's own maps stay in place
    /// until its number is used again: removing them would wait for the kernel's processors.
    pub fn close(&self, number: u32) {
        self.close_queues([number]);
        let slots = &mut lock(&self.opened).slots;
        let Some(opened) = slots.remove(&number) else { return };
        // A missing entry needs no removal.
        for port in &opened.ports {
            let _ = self.map("nic_ports").delete(bytes(port));
        }
        for rank in &opened.members {
            let key = MemberKey { slot: number, rank: *rank };
            let _ = self.map("nic_members").delete(bytes(&key));
        }
        // No key is kept after its job is over.
        let _ = self.update("nic_slots", &number.to_ne_bytes(), &[0; size_of::<Slot>()]);
    }

    /// The map that holds a slot's page, for [`crate::Page::map`] here or in another process.
    pub fn page(&self, number: u32) -> Option<Arc<OwnedFd>> {
        lock(&self.opened).slots.get(&number).map(|slot| Arc::clone(&slot.page))
    }

    /// Open slots, each with its interface.
    pub fn slots(&self) -> Vec<(u32, u32)> {
        let slots = &lock(&self.opened).slots;
        slots.iter().map(|(number, slot)| (*number, slot.interface)).collect()
    }

    fn fill_peers(
        &self,
        plan: &SlotPlan,
        interface: u32,
        map: BorrowedFd<'_>,
    ) -> Result<(), NicError> {
        let mac = mac_address(interface)?;
        let group = plan.group.map(|group| (PEER_GROUP, u32::MAX, group));
        let ranks = plan.peers.iter().enumerate();
        let ranks = ranks.map(|(index, (rank, address))| (index as u32, *rank, *address));
        for (index, rank, address) in ranks.chain(group) {
            let frame = frame::step(plan.socket, address, mac, plan.group_ttl);
            let peer = Peer { is_resolved: 0, frame, rank, learnt: 0 };
            let (key, peer) = (index.to_ne_bytes(), bytes(&peer));
            // SAFETY: key and value have the sizes that the map was made with.
            let code = unsafe {
                libbpf_sys::bpf_map_update_elem(
                    map.as_raw_fd(),
                    key.as_ptr().cast(),
                    peer.as_ptr().cast(),
                    0,
                )
            };
            checked(code).map_err(|source| NicError::System { what: "a slot's peers", source })?;
        }
        Ok(())
    }

    pub(crate) fn object(&self) -> &Object {
        &self.object
    }

    /// Returns a program by its name.
    ///
    /// # Panics
    /// If no program has that name.
    pub(crate) fn program(&self, name: &str) -> BorrowedFd<'_> {
        let found = self.object.progs().find(|program| program.name() == name);
        let program = found.expect("the object has this program").as_fd().as_raw_fd();
        // SAFETY: the object owns the descriptor and lives as long as `self`.
        unsafe { BorrowedFd::borrow_raw(program) }
    }

    /// Returns a map by its name.
    ///
    /// # Panics
    /// If no map has that name.
    fn map(&self, name: &str) -> Map<'_> {
        let found = self.object.maps().find(|map| map.name() == name);
        found.expect("the object has this map")
    }

    fn update(&self, map: &str, key: &[u8], value: &[u8]) -> Result<(), NicError> {
        let updated = self.map(map).update(key, value, MapFlags::ANY);
        let what = "a map of the firmware";
        updated.map_err(|error| NicError::System { what, source: std::io::Error::other(error) })
    }
}

/// The ports by which packets find the slot.
fn port_keys(plan: &SlotPlan) -> Vec<PortKey> {
    let ports = [Some(plan.socket.port()), plan.group.map(|group| group.port())];
    let version = if plan.socket.is_ipv6() { CLASS_V6 } else { 0 };
    let key = |port: u16| PortKey {
        job: plan.job.to_be(),
        communicator: plan.communicator.to_be(),
        channel: plan.channel,
        class: plan.class() as u8 | version,
        port: port.to_be(),
    };
    ports.into_iter().flatten().map(key).collect()
}

/// Cookies of the sockets that a slot's member sends through.
fn senders(plan: &SlotPlan, socket: BorrowedFd<'_>) -> Result<[u64; SENDERS], NicError> {
    let cookie = rustix::net::sockopt::socket_cookie(socket)
        .map_err(|error| NicError::System { what: "a slot's socket", source: error.into() })?;
    Ok([cookie, plan.doorbell.unwrap_or_default()])
}

fn describe(plan: &SlotPlan, interface: u32, senders: [u64; SENDERS]) -> Result<Slot, NicError> {
    let flag = |wanted: bool, flag: u8| if wanted { flag } else { 0 };
    Ok(Slot {
        job: plan.job.to_be(),
        communicator: plan.communicator.to_be(),
        channel: plan.channel,
        flags: flag(plan.forwards, SLOT_FORWARDS) | flag(plan.by_mac, SLOT_BY_MAC),
        port: plan.socket.port().to_be(),
        address: mapped(plan.socket.ip()),
        rank: plan.rank,
        interface,
        is_v6: plan.socket.is_ipv6().into(),
        key: Key::new(plan.own_key()?),
        senders,
        barrier: plan.barrier_table()?,
        multisend: plan.multisend_table()?,
    })
}

/// An IPv6 address, or an IPv4 address mapped to one.
fn mapped(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// Creates a map for one slot.
fn inner_map(
    name: &std::ffi::CStr,
    value_bytes: usize,
    entries: u32,
    flags: u32,
) -> Result<OwnedFd, NicError> {
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as u64,
        map_flags: flags,
        ..Default::default()
    };
    // SAFETY: a system call with numbers, a name and options of the size given.
    let map = unsafe {
        libbpf_sys::bpf_map_create(
            libbpf_sys::BPF_MAP_TYPE_ARRAY,
            name.as_ptr(),
            4,
            value_bytes as u32,
            entries,
            &raw const options,
        )
    };
    let map = checked(map).map_err(|source| NicError::System { what: "a slot's map", source })?;
    // SAFETY: a new descriptor that nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(map) })
}

/// The MAC address of an interface; zeros if it has none.
fn mac_address(interface: u32) -> Result<[u8; 6], NicError> {
    let what = "cannot ask for the interface's address";
    let failed = |source| NicError::System { what, source };
    let name = interfaces::name_of(interface).ok_or_else(|| failed(ErrorKind::NotFound.into()))?;
    interfaces::link(&name).map(|link| link.mac).map_err(failed)
}

/// The bytes of a value without padding, as maps store it.
fn bytes<T: Copy>(value: &T) -> &[u8] {
    bytes_of(std::slice::from_ref(value))
}

/// The bytes of several such values.
fn bytes_of<T: Copy>(values: &[T]) -> &[u8] {
    // SAFETY: the layouts of `omnes_firmware::slot` have no padding; a test compares their sizes.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::plan::MemberPlan;
    use crate::root::{is_root, skip};
    use std::process::Command;

    /// An object with one program that reads where it may not.
    fn bad_object() -> Option<Vec<u8>> {
        let name = format!("omnes-nic-bad-{}", std::process::id());
        let (source, object) =
            (std::env::temp_dir().join(&name), std::env::temp_dir().join(format!("{name}.o")));
        let text = "__attribute__((section(\"tc\"), used)) int bad(void *skb)\n\
                    { return *(volatile int *)0xbad; }\n";
        std::fs::write(&source, text).unwrap();
        let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
        let mut command = Command::new(clang);
        command.args(["-target", "bpf", "-O2", "-w", "-x", "c", "-c"]).arg(&source).arg("-o");
        let is_made = command.arg(&object).status().is_ok_and(|status| status.success());
        let bytes = is_made.then(|| std::fs::read(&object).unwrap());
        let _ = std::fs::remove_file(source);
        let _ = std::fs::remove_file(object);
        bytes
    }

    fn plan() -> SlotPlan {
        let socket = |last| std::net::SocketAddr::new([127, 0, 0, last].into(), 5000);
        let member = |rank| MemberPlan { rank, index: rank, key: [7; 16] };
        SlotPlan {
            job: 1,
            communicator: 1,
            channel: 0,
            rank: 0,
            own: 0,
            socket: socket(1),
            doorbell: None,
            peers: vec![(0, socket(1)), (1, socket(2))],
            members: vec![member(0), member(1)],
            group: None,
            group_ttl: 1,
            barrier: Some("counter".to_owned()),
            tree: None,
            forwards: false,
            by_mac: false,
        }
    }

    #[test]
    fn closing_a_slot_erases_its_key() {
        if !is_root() {
            return;
        }
        let kernel = Kernel::load().unwrap();
        let number = kernel.open(&plan(), 1, None).unwrap();
        let entry = |kernel: &Kernel| {
            let map = kernel.map("nic_slots");
            map.lookup(&number.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap()
        };
        assert!(entry(&kernel).windows(16).any(|bytes| bytes == [7; 16]));
        kernel.close(number);
        assert!(entry(&kernel).iter().all(|byte| *byte == 0));
        let members = kernel.map("nic_members");
        assert_eq!(members.keys().count(), 0);
        assert_eq!(kernel.map("nic_ports").keys().count(), 0);
    }

    #[test]
    fn failed_slot_open_leaves_no_state() {
        if !is_root() {
            return;
        }
        let kernel = Kernel::load().unwrap();
        // More members than the firmware has room for in all slots together.
        let member = |rank| MemberPlan { rank, index: 0, key: [7; 16] };
        let crowded = SlotPlan { members: (0..20_000).map(member).collect(), ..plan() };
        let refused = kernel.open(&crowded, 1, None);
        assert!(matches!(refused, Err(NicError::System { .. })), "{refused:?}");
        assert_eq!(kernel.slots(), []);
        let keys = |map| kernel.map(map).keys().count();
        assert_eq!((keys("nic_ports"), keys("nic_members")), (0, 0));
        assert_eq!(kernel.open(&plan(), 1, None).unwrap(), 0);
    }

    #[test]
    fn opening_beyond_the_slot_limit_fails_until_one_is_closed() {
        if !is_root() {
            return;
        }
        let kernel = Kernel::load().unwrap();
        let open = |communicator| kernel.open(&SlotPlan { communicator, ..plan() }, 1, None);
        for slot in 0..SLOTS_MAX {
            assert_eq!(open(slot).unwrap(), slot);
        }
        let full = open(SLOTS_MAX);
        assert!(matches!(full, Err(NicError::Full { limit: SLOTS_MAX })), "{full:?}");
        kernel.close(7);
        let taken = open(8);
        assert!(matches!(taken, Err(NicError::Taken { communicator: 8, .. })), "{taken:?}");
        assert_eq!(open(SLOTS_MAX).unwrap(), 7);
    }

    /// The kernel waits for its processors after each change of a map of maps.
    #[test]
    fn closing_a_slot_leaves_the_maps_of_maps_unchanged() {
        if !is_root() {
            return;
        }
        let kernel = Kernel::load().unwrap();
        let number = kernel.open(&plan(), 1, None).unwrap();
        // Each map is known by the number that the kernel has given it.
        let inner_maps = || {
            let inner = |map| kernel.map(map).lookup(&number.to_ne_bytes(), MapFlags::ANY);
            ["nic_pages", "nic_peers"].map(|map| inner(map).unwrap())
        };
        let maps = inner_maps();
        kernel.close(number);
        assert!(maps.iter().all(Option::is_some) && inner_maps() == maps);
        assert_eq!(kernel.open(&plan(), 1, None).unwrap(), number);
        assert!(inner_maps().iter().zip(&maps).all(|(new, old)| new.is_some() && new != old));
    }

    #[test]
    fn closing_a_queue_erases_its_key() {
        if !is_root() {
            return;
        }
        let plan = |job, ports: std::ops::Range<u16>| crate::QueuePlan {
            job,
            // The first port twice.
            sockets: std::iter::once(ports.start)
                .chain(ports)
                .map(|port| std::net::SocketAddr::new([127, 0, 0, 1].into(), port))
                .collect(),
            group: None,
        };
        let kernel = Kernel::load().unwrap();
        let plans = [plan(1, 1..32), plan(2, 1..32), plan(2, 40..41)];
        let numbers = plans.map(|plan| kernel.open_queue(&plan).unwrap());
        let keys = |kernel: &Kernel| kernel.map("nic_queues").keys().count();
        assert_eq!(keys(&kernel), 31 + 31 + 1);
        kernel.close(numbers[0]);
        assert_eq!(keys(&kernel), 31 + 1);
        // The first key is missing: the others are deleted one by one.
        let missing = queues::keys(&plan(2, 1..32));
        kernel.map("nic_queues").delete(bytes(&missing[0])).unwrap();
        kernel.close_queues(numbers);
        assert_eq!(keys(&kernel), 0);
    }

    #[test]
    fn verifier_rejection_is_reported_with_its_message() {
        if !is_root() {
            return;
        }
        let Some(object) = bad_object() else {
            return skip("clang");
        };
        match Kernel::load_object(&object).map(|_| ()).unwrap_err() {
            NicError::Refused { reason } => {
                assert!(reason.contains("invalid mem access"), "{reason}");
            }
            other => panic!("{other}"),
        }
        // Bytes that are not an object are rejected, too.
        let refused = Kernel::load_object(b"no object").map(|_| ()).unwrap_err();
        assert!(matches!(refused, NicError::Refused { .. }), "{refused}");
    }
}
