//! The hold loop: keeps delayed and reordered frames, which a BPF program cannot.
//!
//! Each port has a TAP device, `hold<i>`. The fault program redirects a frame to be held there; the
//! loop reads it, keeps it for the delay, and writes it back, upon which the program forwards it to
//! the port as if it had just arrived from the host. Frames are opaque apart from one bit: the
//! group bit of the source address marks a frame that is to be overtaken; it is held
//! [`OVERTAKEN_MIN`]..[`OVERTAKEN_MAX`] longer. The virtio header before each frame preserves
//! checksum and segmentation state, so offloads stay intact.
//!
//! Runs on one thread: of this process for an ephemeral lab, of a background process for a named
//! one. When it ends, the TAP devices vanish.
//!
//! Guarantees that frames of one port with equal delays stay in order. Holds at most
//! [`HELD_BYTES_MAX`]; then it stops reading, and the devices' queues drop and count. Cost: two
//! copies and two system calls per held frame.

use super::firmware::Firmware;
use super::namespace::checked;
use super::network::{HOLD_INDEX_FIRST, batch};
use anyhow::{Context, Result};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, Instant};

/// Shortest extra hold of a frame that is to be overtaken.
const OVERTAKEN_MIN: Duration = Duration::from_micros(100);
/// Longest extra hold, exclusive.
const OVERTAKEN_MAX: Duration = Duration::from_micros(300);
/// Maximum time for the kernel to remove the device of an ended loop.
const REMOVAL_MAX: Duration = Duration::from_secs(2);
/// Maximum number of bytes held.
const HELD_BYTES_MAX: usize = 256 << 20;
/// Maximum number of frames in one hold device that the loop has not read.
const QUEUE_FRAMES: u32 = 4096;
/// Frames read from one device before the others and due frames get their turn.
const READ_BURST: usize = 64;
/// Size of the virtio header before each frame.
const VNET_BYTES: usize = 10;
/// Offset of the source address's group bit in the data read.
const SOURCE_OFFSET: usize = VNET_BYTES + 6;
const GROUP_BIT: u8 = 1;
/// Header, Ethernet header and the largest IP packet.
const FRAME_BYTES_MAX: usize = VNET_BYTES + 18 + 65_535;

/// A held frame, ordered by the time it is due, then by arrival.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Held {
    due: Instant,
    arrival: u64,
    port: usize,
    frame: Vec<u8>,
}

/// The hold devices of a lab with the held frames.
pub struct HoldLoop {
    taps: Vec<File>,
    firmware: Firmware,
    held: BinaryHeap<Reverse<Held>>,
    held_bytes: usize,
    arrivals: u64,
    spare: Vec<Vec<u8>>,
}

impl HoldLoop {
    /// Creates the hold devices of `hosts` ports; to be called inside the switch's namespace.
    pub fn create(hosts: usize, mtu_bytes: u32, firmware: Firmware) -> Result<Self> {
        let taps: Vec<_> = (0..hosts)
            .map(|port| {
                wait_for_tap(port).with_context(|| format!("cannot make hold device {port}"))
            })
            .collect::<Result<_>>()?;
        let line =
            |port| format!("link set hold{port} mtu {mtu_bytes} txqueuelen {QUEUE_FRAMES} up\n");
        batch("ip", &(0..hosts).map(line).collect::<String>())?;
        for port in 0..hosts as u32 {
            firmware.attach_hold(HOLD_INDEX_FIRST + port)?;
        }
        let (held, spare) = (BinaryHeap::new(), Vec::new());
        Ok(Self { taps, firmware, held, held_bytes: 0, arrivals: 0, spare })
    }

    /// Holds and releases frames until `stop` is readable or its other end is closed.
    pub fn serve(mut self, stop: BorrowedFd) -> Result<()> {
        make_punctual();
        let wanted = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut ready: Vec<_> = self.taps.iter().map(|tap| wanted(tap.as_raw_fd())).collect();
        ready.push(wanted(stop.as_raw_fd()));
        let mut buffer = vec![0; FRAME_BYTES_MAX];
        loop {
            let is_full = self.held_bytes >= HELD_BYTES_MAX;
            // When full, waits only for the stop and the next due frame.
            let first = if is_full { self.taps.len() } else { 0 };
            wait(&mut ready[first..], self.next_due())?;
            if ready.last().is_some_and(|stop| stop.revents != 0) {
                return Ok(());
            }
            let delay = Duration::from_nanos(self.firmware.delay_ns()?);
            let taps = self.taps.len();
            for (port, _) in
                ready[..taps].iter().enumerate().skip(first).filter(|(_, r)| r.revents != 0)
            {
                self.take_in(port, delay, &mut buffer);
            }
            self.release();
        }
    }

    fn next_due(&self) -> Option<Instant> {
        self.held.peek().map(|Reverse(held)| held.due)
    }

    /// Reads a burst of frames of `port` into the hold.
    fn take_in(&mut self, port: usize, delay: Duration, buffer: &mut [u8]) {
        for _ in 0..READ_BURST {
            // Nothing more to read, or the device is being removed: either way the turn is over.
            let Ok(bytes) = (&self.taps[port]).read(buffer) else { return };
            let mut due = Instant::now() + delay;
            if bytes > SOURCE_OFFSET && buffer[SOURCE_OFFSET] & GROUP_BIT != 0 {
                buffer[SOURCE_OFFSET] &= !GROUP_BIT;
                due += extra_hold(self.arrivals);
            }
            let mut frame = self.spare.pop().unwrap_or_default();
            frame.clear();
            frame.extend_from_slice(&buffer[..bytes]);
            self.held_bytes += bytes;
            self.held.push(Reverse(Held { due, arrival: self.arrivals, port, frame }));
            self.arrivals += 1;
        }
    }

    /// Writes due frames back.
    fn release(&mut self) {
        while self.next_due().is_some_and(|due| due <= Instant::now()) {
            let Some(Reverse(held)) = self.held.pop() else { return };
            // The kernel counts frames that it cannot accept (rx_dropped of the device).
            let _ = (&self.taps[held.port]).write(&held.frame);
            self.held_bytes -= held.frame.len();
            if self.spare.len() < QUEUE_FRAMES as usize {
                self.spare.push(held.frame);
            }
        }
    }
}

/// Additional hold time of frame number `arrival`: evenly spread, the same in every run.
fn extra_hold(arrival: u64) -> Duration {
    let spread = (OVERTAKEN_MAX - OVERTAKEN_MIN).as_nanos() as u64;
    // Multiples of the golden ratio fill an interval evenly.
    OVERTAKEN_MIN
        + Duration::from_nanos((arrival.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % spread)
}

/// Requests exact timers and the CPU when frames are due: a wire is not late because hosts compute.
///
/// Refusals are accepted; delays are then only exact on an idle machine.
fn make_punctual() {
    // SAFETY: takes no pointers; changes the calling thread alone.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) };
    let parameter = libc::sched_param { sched_priority: 1 };
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: `parameter` is read only; 0 is the calling thread.
    unsafe { libc::sched_setscheduler(0, policy, &parameter) };
}

/// Waits until one of `ready` is ready or `due` is reached. A signal counts as ready.
fn wait(ready: &mut [libc::pollfd], due: Option<Instant>) -> Result<()> {
    let left = due.map(|due| due.saturating_duration_since(Instant::now()));
    let timeout = left.map(|left| libc::timespec {
        tv_sec: left.as_secs() as libc::time_t,
        tv_nsec: left.subsec_nanos().into(),
    });
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    ready.iter_mut().for_each(|one| one.revents = 0);
    // SAFETY: pointer and length are those of `ready`; `timeout` is null or lives on this stack.
    let result = unsafe {
        libc::ppoll(ready.as_mut_ptr(), ready.len() as libc::nfds_t, timeout, std::ptr::null())
    };
    match checked(result) {
        Err(error) if error.kind() != std::io::ErrorKind::Interrupted => Err(error.into()),
        _ => Ok(()),
    }
}

/// Like [`open_tap`], once the device of a killed loop is gone: the kernel removes it some time
/// after the process has ended.
fn wait_for_tap(port: usize) -> std::io::Result<File> {
    let begin = Instant::now();
    loop {
        match open_tap(port) {
            Err(error)
                if error.raw_os_error() == Some(libc::EBUSY) && begin.elapsed() < REMOVAL_MAX =>
            {
                std::thread::sleep(Duration::from_millis(2));
            }
            tap => return tap,
        }
    }
}

/// Creates TAP device `hold<port>` with its own interface index in the calling thread's namespace.
fn open_tap(port: usize) -> std::io::Result<File> {
    const TUNSETIFF: libc::Ioctl = 0x4004_54ca;
    const TUNSETOFFLOAD: libc::Ioctl = 0x4004_54d0;
    const TUNSETIFINDEX: libc::Ioctl = 0x4004_54da;
    const OFFLOADS: libc::c_ulong = 0x01 | 0x02 | 0x04; // checksum, TCP segmentation 4 and 6
    const OFFLOADS_UDP: libc::c_ulong = 0x20 | 0x40; // UDP segmentation, since Linux 6.2
    let tap = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/net/tun")?;
    let index = HOLD_INDEX_FIRST + port as u32;
    // SAFETY: all zeroes is a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(format!("hold{port}").bytes()) {
        *to = from as libc::c_char;
    }
    let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    let fd = tap.as_raw_fd();
    // SAFETY: `index` and `request` live through the calls, which read and fill them.
    unsafe {
        checked(libc::ioctl(fd, TUNSETIFINDEX, &index))?;
        checked(libc::ioctl(fd, TUNSETIFF, &mut request))?;
    }
    // SAFETY: the argument is a number, not a pointer.
    let offloads = |which: libc::c_ulong| checked(unsafe { libc::ioctl(fd, TUNSETOFFLOAD, which) });
    offloads(OFFLOADS | OFFLOADS_UDP).or_else(|_| offloads(OFFLOADS))?;
    Ok(tap)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reordered_frames_are_held_within_their_bounds() {
        let holds: Vec<_> = (0..1000).map(extra_hold).collect();
        assert!(holds.iter().all(|hold| (OVERTAKEN_MIN..OVERTAKEN_MAX).contains(hold)));
        let late = holds.iter().filter(|hold| **hold > Duration::from_micros(200)).count();
        assert!((400..600).contains(&late), "{late} of 1000 in the upper half");
    }

    #[test]
    fn frames_due_at_the_same_time_leave_in_arrival_order() {
        let due = Instant::now();
        let held = |arrival| Reverse(Held { due, arrival, port: 0, frame: Vec::new() });
        let mut heap: BinaryHeap<_> = [2, 0, 1].into_iter().map(held).collect();
        let order: Vec<_> =
            std::iter::from_fn(|| heap.pop()).map(|Reverse(one)| one.arrival).collect();
        assert_eq!(order, [0, 1, 2]);
    }
}
