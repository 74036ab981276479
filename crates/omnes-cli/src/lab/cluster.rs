//! A lab: namespace hosts, the network between them, and the faults on it.
//!
//! An *ephemeral* lab belongs to this process: only its file descriptors hold the namespaces, and
//! its threads hold delayed frames, so that the kernel removes everything when the process ends in
//! any way. A *named* lab is pinned in the file system ([`super::named`]); a background process
//! holds its delayed frames. Each lab's switch has a namespace of its own, so that several labs can
//! use the same addresses concurrently.
//!
//! Without faults no program is attached and trains of segments cross whole; with faults every wire
//! packet crosses alone.

use super::firmware::{self, Firmware};
use super::hold::HoldLoop;
use super::namespace::{Spaces, inside, require_privilege};
use super::network::{self, Crossing, HOSTS_MAX};
use super::options::{Link, LinkOptions};
use super::process::{self, Process};
use super::stats::{self, HostStats};
use super::{keeper, named};
use anyhow::{Context, Result, ensure};
use std::io::PipeWriter;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;

/// Variable that identifies the network to its ranks.
const NETWORK: &str = "OMNES_NETWORK";

/// A cluster of namespace hosts on this machine.
pub struct Lab {
    pub(super) spaces: Spaces,
    pub(super) name: Option<String>,
    pub(super) wiring: Mutex<Wiring>,
}

/// Parts that can change while a lab is up.
pub(super) struct Wiring {
    pub link: Link,
    pub firmware: Option<Firmware>,
    pub hold: Option<Hold>,
}

/// Where the hold loop runs.
pub(super) enum Hold {
    Thread(HoldThread),
    Process(Process),
}

impl Lab {
    /// Creates a lab of `hosts` hosts, 1 to [`HOSTS_MAX`], that lives as long as the returned value
    /// and at most as long as this process.
    ///
    /// Fails with [`super::CannotRun`] if the user lacks the privilege, or iproute2 or, for faults,
    /// the compiled program is missing.
    pub fn ephemeral(hosts: usize, options: &LinkOptions) -> Result<Self> {
        let link = Link::resolve(options)?;
        let lab = Self::perfect(hosts, None, link.mtu_bytes)?;
        lab.rewire(&link)?;
        Ok(lab)
    }

    /// Opens the lab `name` created by `omnes lab up`; dropping it leaves the lab up.
    pub fn open(name: &str) -> Result<Self> {
        require_privilege()?;
        named::open(name)
    }

    /// Creates a lab with perfect links, not pinned yet; `name` is that of a named lab.
    pub(super) fn perfect(hosts: usize, name: Option<&str>, mtu_bytes: u32) -> Result<Self> {
        require_privilege()?;
        ensure!((1..=HOSTS_MAX).contains(&hosts), "a lab has 1 to {HOSTS_MAX} hosts, not {hosts}");
        let link = Link::resolve(&LinkOptions { mtu: Some(mtu_bytes), ..Default::default() })?;
        let spaces = Spaces::create(hosts, name.unwrap_or("lab"))?;
        network::connect(&spaces, &link)?;
        let wiring = Mutex::new(Wiring { link, firmware: None, hold: None });
        Ok(Self { spaces, name: name.map(str::to_owned), wiring })
    }

    /// Number of hosts.
    pub fn size(&self) -> usize {
        self.spaces.hosts.len()
    }

    /// Address of `host`, which must be below [`Lab::size`].
    pub fn address(&self, host: usize, ipv6: bool) -> IpAddr {
        assert!(host < self.size(), "host {host} of a lab of {}", self.size());
        network::address(host, ipv6)
    }

    /// Makes `command` start in `host`: its network, its name, its `/dev/shm`; the working
    /// directory is unchanged. May be used after the lab was dropped, but then there are no peers
    /// left. All labs have the same addresses, so `OMNES_NETWORK` distinguishes them, unless it is
    /// set.
    pub fn enter_in(&self, host: usize, command: &mut Command) -> Result<()> {
        let is_given = command.get_envs().any(|(name, _)| name == NETWORK);
        if !is_given && std::env::var_os(NETWORK).is_none() {
            let links = Link { fault_seed: 0, ..self.link() };
            command.env(NETWORK, format!("lab, links {links},"));
        }
        self.spaces.enter_in(host, command)
    }

    /// Changes the given `options` on all links; packets in flight are not lost, unless the last
    /// fault is removed while some are held. The MTU cannot change.
    pub fn set_faults(&self, options: &LinkOptions) -> Result<()> {
        let _lock = self.lock()?;
        let link = self.link().with(options);
        self.rewire(&link)
    }

    /// Locks a named lab for changes, and reads it again, because others may have changed it since
    /// it was opened.
    fn lock(&self) -> Result<Option<named::Lock>> {
        let Some(name) = &self.name else { return Ok(None) };
        let lock = named::Lock::take()?;
        *self.wiring() = named::wiring(name, &self.spaces)?;
        Ok(Some(lock))
    }

    /// Present properties of the links.
    pub fn link(&self) -> Link {
        self.wiring().link.clone()
    }

    /// Traffic on each host's link, one entry per host. Counts wire packets if faults are on.
    pub fn stats(&self) -> Result<Vec<HostStats>> {
        let wiring = self.wiring();
        stats::read(&self.spaces, wiring.firmware.as_ref(), wiring.link.rate_bps.is_some())
    }

    /// The kernel's number of the fault program, if faults are on; it disappears with the lab.
    pub(super) fn program_id(&self) -> Option<u32> {
        self.wiring().firmware.as_ref().map(|firmware| firmware.ids().program)
    }

    fn wiring(&self) -> MutexGuard<'_, Wiring> {
        // A panic elsewhere leaves a half-changed link, which the next change repairs.
        self.wiring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets all links to `link`; a named lab needs the [`named::Lock`]. After an error the state
    /// records what was done.
    pub(super) fn rewire(&self, link: &Link) -> Result<()> {
        let mut wiring = self.wiring();
        let done = self.change(&mut wiring, link);
        let saved = self.save(&wiring);
        done.and(saved)
    }

    fn change(&self, wiring: &mut Wiring, link: &Link) -> Result<()> {
        let mtu = wiring.link.mtu_bytes;
        ensure!(link.mtu_bytes == mtu, "the MTU is fixed when a lab is made; this one has {mtu}");
        if link.rate_bps != wiring.link.rate_bps {
            network::shape(&self.spaces, link)?;
            wiring.link.rate_bps = link.rate_bps;
        }
        match (link.has_faults(), wiring.firmware.is_some()) {
            (true, false) => self.add_firmware(wiring)?,
            (false, true) => self.remove_firmware(wiring)?,
            _ => {}
        }
        // Also if this failed after the firmware was added or removed.
        if link.has_faults() != wiring.link.has_faults() {
            let crossing = if link.has_faults() { Crossing::Single } else { Crossing::Trains };
            network::set_crossing(&self.spaces, crossing)?;
        }
        if link.tx_offload != wiring.link.tx_offload {
            network::set_tx_offload(&self.spaces, link.tx_offload)?;
            wiring.link.tx_offload = link.tx_offload;
        }
        if link.is_holding() && !wiring.has_hold() {
            self.start_hold(wiring)?;
        }
        if let Some(firmware) = &wiring.firmware {
            firmware.configure(link, self.size())?;
        }
        wiring.link = link.clone();
        Ok(())
    }

    /// Restarts the holder of delayed frames if it has been killed: without it none gets through.
    pub fn restore_hold(&self) -> Result<()> {
        if !self.wiring().lacks_hold() {
            return Ok(());
        }
        let _lock = self.lock()?;
        let mut wiring = self.wiring();
        if wiring.lacks_hold() {
            self.start_hold(&mut wiring)?;
            self.save(&wiring)?;
        }
        Ok(())
    }

    fn add_firmware(&self, wiring: &mut Wiring) -> Result<()> {
        let switch = self.spaces.switch.as_fd();
        wiring.firmware = Some(inside(switch, || Firmware::load(self.size()))?);
        Ok(())
    }

    fn remove_firmware(&self, wiring: &mut Wiring) -> Result<()> {
        inside(self.spaces.switch.as_fd(), || firmware::detach(self.size()))?;
        wiring.firmware = None;
        if let Some(Hold::Process(keeper)) = wiring.hold.take() {
            process::end(|| keeper.is_alive().then_some(keeper).into_iter().collect());
        }
        Ok(())
    }

    fn start_hold(&self, wiring: &mut Wiring) -> Result<()> {
        let firmware = wiring.firmware.as_ref().expect("holding is a fault, so there is a program");
        wiring.hold = Some(match &self.name {
            None => Hold::Thread(HoldThread::start(&self.spaces, wiring.link.mtu_bytes, firmware)?),
            Some(name) => {
                // The keeper reads from the state which program it serves.
                self.save(wiring)?;
                Hold::Process(keeper::start(name)?)
            }
        });
        Ok(())
    }

    /// Writes the state of a named lab to disk.
    fn save(&self, wiring: &Wiring) -> Result<()> {
        match &self.name {
            Some(name) => named::State::of(name, &self.spaces, wiring).save(),
            None => Ok(()),
        }
    }
}

impl Wiring {
    fn has_hold(&self) -> bool {
        self.hold.as_ref().is_some_and(Hold::is_alive)
    }

    fn lacks_hold(&self) -> bool {
        self.firmware.is_some() && self.link.is_holding() && !self.has_hold()
    }
}

impl Hold {
    fn is_alive(&self) -> bool {
        match self {
            Self::Thread(thread) => thread.is_alive(),
            Self::Process(keeper) => keeper.is_alive(),
        }
    }
}

/// Hold loop on a thread of this process; ends when dropped.
pub(super) struct HoldThread {
    stop: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl HoldThread {
    fn start(spaces: &Spaces, mtu_bytes: u32, firmware: &Firmware) -> Result<Self> {
        let (stopped, stop) = std::io::pipe()?;
        let (switch, firmware) = (spaces.switch.try_clone()?, firmware.try_clone()?);
        let hosts = spaces.hosts.len();
        let (ready, is_ready) = mpsc::channel();
        let thread = std::thread::Builder::new().name("lab-hold".to_owned()).spawn(move || {
            let served = inside(switch.as_fd(), || {
                let hold = HoldLoop::create(hosts, mtu_bytes, firmware);
                // There is no receiver only if the lab was given up meanwhile.
                let _ = ready.send(hold.as_ref().map(|_| ()).map_err(|error| format!("{error:#}")));
                hold.map_or(Ok(()), |hold| hold.serve(stopped.as_fd()))
            });
            if let Err(error) = served {
                crate::stderr::notice(format_args!("the lab no longer delays packets: {error:#}"));
            }
        })?;
        let started = is_ready.recv().context("the hold loop ended immediately")?;
        started.map_err(anyhow::Error::msg)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }

    fn is_alive(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }
}

impl Drop for HoldThread {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the loop was printed when it occurred.
            let _ = thread.join();
        }
    }
}
