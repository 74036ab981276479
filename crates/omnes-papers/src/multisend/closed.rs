//! Multi-send: the formulas of sections 2 and 4, with the fits of testbed `fm-lanai4`.
//!
//! All times are whole picoseconds, so the formulas are exact.

use crate::{Finding, Target};
use omnes_sim::engine::{Cost, Span};
use omnes_sim::testbed::{self, Testbed};
use omnes_topo::{Lambda, PostalTimes, postal};

/// Payload of a full packet [MS-R2].
pub(super) const PACKET_BYTES: u64 = 1536;
/// Destinations of the worked example.
const DESTINATIONS: u64 = 6;
/// A megabyte, as counted in the paper.
const MEBIBYTE: f64 = (1 << 20) as f64;
/// Rate of programmed writes with write combining, quoted in the paper from another study.
const COMBINED_MIB_PER_S: f64 = 90.0;
/// That rate as rounded in the paper: 0.0106 us per byte.
const COMBINED_PER_BYTE: Span = Span::from_ps(10_600);
/// Clock rates of hosts and of NICs, slowest and fastest.
const HOST_MHZ: [f64; 2] = [300.0, 500.0];
const NIC_MHZ: [f64; 2] = [33.0, 66.0];
/// The measured break-even size.
const BREAK_EVEN_BYTES: u64 = 32;

/// The three fitted lines, by payload bytes of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fits {
    /// The host's time.
    pub(super) send: Cost,
    /// The NIC's time.
    pub(super) transmit: Cost,
    /// The receiver's time, NIC and host.
    pub(super) receive: Cost,
}

impl Fits {
    /// The fits of the testbed.
    pub(super) fn measured() -> Self {
        let Testbed { host, nic, link, .. } = testbed::named("fm-lanai4").expect("it is built in");
        let receive = [nic.receive, link.wire].into_iter().fold(host.receive, sum);
        Self { send: host.send, transmit: nic.transmit, receive }
    }

    /// The fits with write combining.
    fn combining() -> Self {
        let measured = Self::measured();
        Self { send: Cost { per_byte: COMBINED_PER_BYTE, ..measured.send }, ..measured }
    }

    /// `t_send + (k - 1) t_xmit + t_recv` for one full packet.
    fn multi_send(&self, destinations: u64) -> Span {
        let again = self.transmit.of(PACKET_BYTES) * (destinations - 1);
        self.send.of(PACKET_BYTES) + again + self.receive.of(PACKET_BYTES)
    }

    /// `k t_send + t_recv` for one full packet.
    fn repeated(&self, destinations: u64) -> Span {
        self.send.of(PACKET_BYTES) * destinations + self.receive.of(PACKET_BYTES)
    }

    /// Gain of multi-send for the worked example.
    fn gain(&self) -> f64 {
        ratio(self.repeated(DESTINATIONS), self.multi_send(DESTINATIONS))
    }

    /// `t_send - t_xmit`, in microseconds.
    fn margin_us(&self, bytes: u64) -> f64 {
        self.send.of(bytes).as_us() - self.transmit.of(bytes).as_us()
    }

    /// Upper bound of the gain for any number of destinations.
    fn gain_bound(&self) -> f64 {
        ratio(self.send.of(PACKET_BYTES), self.transmit.of(PACKET_BYTES))
    }

    /// Lambda for packets of `bytes` bytes [MS-R17].
    pub(super) fn lambda(&self, bytes: u64) -> Lambda {
        // A ratio has no unit, so picoseconds serve as well.
        let times = PostalTimes {
            send_ns: self.send.of(bytes).as_ps(),
            transmit_ns: self.transmit.of(bytes).as_ps(),
            receive_ns: self.receive.of(bytes).as_ps(),
        };
        Lambda::from_times(times).expect("the fits are above 0")
    }
}

fn sum(one: Cost, other: Cost) -> Cost {
    Cost { fixed: one.fixed + other.fixed, per_byte: one.per_byte + other.per_byte }
}

fn ratio(over: Span, under: Span) -> f64 {
    over.as_ps() as f64 / under.as_ps() as f64
}

/// The finding of a target that is a formula.
pub(super) fn find(target: &Target) -> Option<Finding> {
    let (fits, combining) = (Fits::measured(), Fits::combining());
    let us = |cost: Cost| cost.of(PACKET_BYTES).as_us();
    let ours = match target.id.as_str() {
        "MS-F01" => us(fits.send),
        "MS-F02" => us(fits.transmit),
        "MS-F03" => us(fits.receive),
        "MS-F04" => fits.multi_send(DESTINATIONS).as_us(),
        "MS-F05" => fits.repeated(DESTINATIONS).as_us(),
        "MS-F06" => fits.gain(),
        "MS-F07" => us(combining.send),
        "MS-F08" => combining.multi_send(DESTINATIONS).as_us(),
        "MS-F09" => combining.repeated(DESTINATIONS).as_us(),
        "MS-F10" => combining.gain(),
        "MS-F11" => 1e6 / fits.send.per_byte.as_us() / MEBIBYTE,
        "MS-F12" => 1e6 / (COMBINED_MIB_PER_S * MEBIBYTE),
        "MS-F15" => fits.gain_bound(),
        "MS-F16" => combining.gain_bound(),
        "MS-F18" => f64::from(fits.lambda(PACKET_BYTES).thousandths()) / 1e3,
        _ => return find_other(target, &fits),
    };
    Some(Finding::judged(target, ours))
}

fn find_other(target: &Target, fits: &Fits) -> Option<Finding> {
    Some(match target.id.as_str() {
        "MS-F13" => least_margin(target, fits),
        "MS-F14" => Finding::judged(target, fits.margin_us(BREAK_EVEN_BYTES)),
        "MS-F17" => Finding::judged(target, [HOST_MHZ[0] / NIC_MHZ[1], HOST_MHZ[1] / NIC_MHZ[0]]),
        "MS-F19" => Finding::judged(target, reach(1, 5)),
        "MS-F20" => Finding::judged(target, reach(2, 6)),
        "MS-F25" => Finding::judged(target, packets(16_384) as f64),
        "MS-M13" => Finding::not_computed(
            "the time of checks in FM's own code, which is not here; MS-S03 counts the NIC's",
        ),
        _ => return None,
    })
}

/// The smallest `t_send - t_xmit` over all packet sizes.
fn least_margin(target: &Target, fits: &Fits) -> Finding {
    let margins = (0..=PACKET_BYTES).map(|bytes| (fits.margin_us(bytes), bytes));
    let (margin, bytes) = margins
        .reduce(|least, next| if next.0 < least.0 { next } else { least })
        .unwrap_or_default();
    Finding::judged(target, margin).noting(format!(
        "at {bytes} bytes; so by the fits multi-send wins at every size, against the loss below \
         32 bytes of section 6"
    ))
}

/// Number of ranks that have the packet after 0, 1, ... `units` [MS-R18].
fn reach(lambda: u16, units: u64) -> Vec<f64> {
    let reached = |unit| postal::reach(unit * postal::UNIT, Lambda::whole(lambda)) as f64;
    (0..=units).map(reached).collect()
}

/// Number of packets of a message [MS-R2].
pub(super) fn packets(bytes: u64) -> u64 {
    let testbed = testbed::named("fm-lanai4").expect("it is built in");
    bytes.div_ceil(testbed.link.payload_bytes).max(1)
}
