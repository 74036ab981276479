//! The fault programs of a lab (`firmware/link_faults.bpf.c`): loading, attaching, configuration
//! and counters.
//!
//! "The program" is the one for packets from the hosts; the other one, for packets to them, needs
//! no later attaching and shares its maps.
//!
//! The programs are attached as clsact filters in the switch's namespace. They vanish with the
//! interfaces, thus with the lab, and hold the maps while they live, so that another process can
//! find the maps by their numbers (`omnes lab set`, `omnes lab list`).
//!
//! All fields of `struct link_config` and `struct link_port` are 64-bit words; each access checks
//! that the map has as many as this file defines.

use super::namespace::CannotRun;
use super::network::{HOLD_INDEX_FIRST, PORT_INDEX_FIRST, batch};
use super::options::Link;
use anyhow::{Context, Result, ensure};
use libbpf_rs::{
    MapCore, MapFlags, MapHandle, ObjectBuilder, ProgramHandle, TC_EGRESS, TC_INGRESS,
    TcAttachPoint, TcHookBuilder,
};
use serde::{Deserialize, Serialize};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The compiled object; empty if the command was built without a clang that supports BPF.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/link_faults.bpf.o"));

const CONFIG_MAP: &str = "link_configs";
const PORTS_MAP: &str = "link_ports";
const INGRESS_PROGRAM: &str = "link_ingress";
const EGRESS_PROGRAM: &str = "link_egress";

/// Words of `struct link_config`, in the order of its fields.
const CONFIG_WORDS: usize = 9;
/// Words of `struct link_port`: packets, dropped, duplicated, delayed, reordered, received,
/// receive_dropped.
const PORT_WORDS: usize = 7;
const DELAY_FIELD: usize = 1;

/// Counters of the fault program for one host.
#[derive(Clone, Copy, Debug, Default)]
pub struct FaultCounters {
    /// Wire packets that reached the port and for which faults were drawn.
    pub packets: u64,
    /// Dropped on purpose.
    pub dropped: u64,
    /// Duplicated.
    pub duplicated: u64,
    /// Held for the delay.
    pub delayed: u64,
    /// Held longer, so that later packets overtake.
    pub reordered: u64,
    /// Wire packets to the host for which loss was drawn.
    pub received: u64,
    /// Of these: dropped on purpose.
    pub receive_dropped: u64,
}

/// Kernel numbers of a loaded fault program; valid while the lab lives.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct FirmwareIds {
    config_map: u32,
    ports_map: u32,
    /// The program itself.
    pub program: u32,
}

/// A loaded fault program.
pub struct Firmware {
    config: MapHandle,
    ports: MapHandle,
    program: OwnedFd,
    ids: FirmwareIds,
}

impl Firmware {
    /// Loads the programs and attaches them to the ports of `hosts` hosts; to be called inside the
    /// switch's namespace. Packets are not affected until [`Firmware::configure`].
    pub fn load(hosts: usize) -> Result<Self> {
        if OBJECT.is_empty() {
            let reason = "this omnes was built without clang for BPF: link faults are unavailable";
            return Err(CannotRun(reason.to_owned()).into());
        }
        // The library would print to stderr what its errors also contain.
        libbpf_rs::set_print(None);
        let object = ObjectBuilder::default()
            .open_memory(OBJECT)
            .and_then(|object| object.load())
            .context("the kernel refuses the link-fault program")?;
        let map = |name: &str| {
            let found = object.maps().find(|map| map.name() == name);
            MapHandle::try_from(&found.expect("the object has this map"))
                .context("cannot keep a map")
        };
        let (config, ports) = (map(CONFIG_MAP)?, map(PORTS_MAP)?);
        let program = |name: &str| {
            let found = object.progs().find(|program| program.name() == name);
            found.expect("the object has this program").as_fd().try_clone_to_owned()
        };
        let (program, egress) = (program(INGRESS_PROGRAM)?, program(EGRESS_PROGRAM)?);
        let ids = FirmwareIds {
            config_map: config.info()?.info.id,
            ports_map: ports.info()?.info.id,
            program: libbpf_rs::Program::id_from_fd(program.as_fd())?,
        };
        for port in 0..hosts as u32 {
            attach(program.as_fd(), PORT_INDEX_FIRST + port, TC_INGRESS)?;
            attach(egress.as_fd(), PORT_INDEX_FIRST + port, TC_EGRESS)?;
        }
        Ok(Self { config, ports, program, ids })
    }

    /// Opens the program that another process loaded.
    pub fn open(ids: FirmwareIds) -> Result<Self> {
        let open = |id, name: &str| {
            let map = MapHandle::from_map_id(id).with_context(|| format!("map {id} is gone"))?;
            ensure!(map.name() == name, "map {id} is not one of a lab");
            Ok(map)
        };
        let program = ProgramHandle::from_prog_id(ids.program)?;
        Ok(Self {
            config: open(ids.config_map, CONFIG_MAP)?,
            ports: open(ids.ports_map, PORTS_MAP)?,
            program: program.as_fd().try_clone_to_owned()?,
            ids,
        })
    }

    /// A second handle of the same program.
    pub fn try_clone(&self) -> Result<Self> {
        Self::open(self.ids)
    }

    /// Numbers by which another process can [`Firmware::open`] it.
    pub fn ids(&self) -> FirmwareIds {
        self.ids
    }

    /// Sets the faults for the next packets.
    pub fn configure(&self, link: &Link, hosts: usize) -> Result<()> {
        let threshold = |share: f64| (share * 2f64.powi(32)).round() as u64;
        let config: [u64; CONFIG_WORDS] = [
            link.fault_seed,
            link.delay_ns,
            threshold(link.loss),
            threshold(link.duplicate),
            threshold(link.reorder),
            PORT_INDEX_FIRST.into(),
            HOLD_INDEX_FIRST.into(),
            hosts as u64,
            threshold(link.receive_loss),
        ];
        let bytes: Vec<u8> = config.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.config.update(&0u32.to_ne_bytes(), &bytes, MapFlags::ANY).context("cannot set faults")
    }

    /// The configured delay.
    pub fn delay_ns(&self) -> Result<u64> {
        Ok(words::<CONFIG_WORDS>(&self.config, 0)?[DELAY_FIELD])
    }

    /// Counters of the packets of `host`.
    pub fn counters(&self, host: usize) -> Result<FaultCounters> {
        let [packets, dropped, duplicated, delayed, reordered, received, receive_dropped] =
            words::<PORT_WORDS>(&self.ports, host as u32)?;
        Ok(FaultCounters {
            packets,
            dropped,
            duplicated,
            delayed,
            reordered,
            received,
            receive_dropped,
        })
    }

    /// Makes the program forward frames that return through the hold device `index` to their port.
    pub fn attach_hold(&self, index: u32) -> Result<()> {
        attach(self.program.as_fd(), index, TC_INGRESS)
    }
}

/// Detaches both programs from the ports of `hosts` hosts, in the switch's namespace.
pub fn detach(hosts: usize) -> Result<()> {
    batch(
        "tc",
        &(0..hosts).map(|host| format!("qdisc del dev p{host} clsact\n")).collect::<String>(),
    )
}

fn attach(program: BorrowedFd, index: u32, point: TcAttachPoint) -> Result<()> {
    let attach = || {
        let index = i32::try_from(index).expect("indices are small");
        let mut hook = TcHookBuilder::new(program).ifindex(index).handle(1).priority(1).hook(point);
        hook.create()?.attach()
    };
    attach().with_context(|| format!("cannot attach the fault program to interface {index}"))?;
    Ok(())
}

/// Entry `index` of an array map whose values are `N` words.
fn words<const N: usize>(map: &MapHandle, index: u32) -> Result<[u64; N]> {
    let value = map
        .lookup(&index.to_ne_bytes(), MapFlags::ANY)
        .context("cannot read a map of the fault program")?
        .context("no such entry in a map of the fault program")?;
    let mut words = [0; N];
    ensure!(value.len() == N * 8, "a map of the fault program has another layout");
    for (word, bytes) in words.iter_mut().zip(value.chunks_exact(8)) {
        *word = u64::from_ne_bytes(bytes.try_into().expect("chunks of eight"));
    }
    Ok(words)
}
