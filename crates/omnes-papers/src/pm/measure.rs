//! PM: runs of the emulation, and values measured in them.

use super::lanai::{Constants, Copies, Design, Program, World};
use omnes_sim::engine::Time;

/// Rounds of a ping-pong.
const ROUNDS: u32 = 12;
/// Bytes of a stream, and bounds of its number of messages.
const STREAM_BYTES: u64 = 1 << 20;
const STREAM_COUNT_MIN: u64 = 160;
const STREAM_COUNT_MAX: u64 = 3_000;

/// One-way latency in us: half of a ping-pong.
pub(super) fn latency_us(constants: &Constants, design: Design, bytes: u64) -> f64 {
    let ping = Program::Ping { to: 1, bytes, rounds: ROUNDS };
    let mut world = World::new(constants, design, bytes, vec![ping, Program::Echo { bytes }]);
    world.run();
    let received = world.received(0);
    let (first, last) = (received[0], received[received.len() - 1]);
    last.since(first).as_us() / f64::from(2 * (ROUNDS - 1))
}

/// Rate of a stream to one receiver, in MB/s.
pub(super) fn rate(constants: &Constants, design: Design, bytes: u64) -> f64 {
    rate_each(constants, design, bytes, (1, Copies::Fetched))
}

/// Rate per receiver of a stream to several receivers, in MB/s.
pub(super) fn rate_each(
    constants: &Constants,
    design: Design,
    bytes: u64,
    (receivers, copies): (usize, Copies),
) -> f64 {
    let count = (STREAM_BYTES / bytes).clamp(STREAM_COUNT_MIN, STREAM_COUNT_MAX) as u32;
    let to = (1..=receivers).collect();
    let mut programs = vec![Program::Stream { to, bytes, count, copies }];
    let sink = Program::Sink { count, from: Time::ZERO };
    programs.resize(1 + receivers, sink);
    let mut world = World::new(constants, design, bytes, programs);
    world.run();
    let rates = (1..=receivers).map(|node| steady_rate(world.received(node), bytes));
    rates.sum::<f64>() / receivers as f64
}

/// Rate in MB/s between the first quarter's end and the last message.
fn steady_rate(received: &[Time], bytes: u64) -> f64 {
    let (from, to) = (received.len() / 4, received.len() - 1);
    (to - from) as f64 * bytes as f64 / received[to].since(received[from]).as_us()
}

/// The least multiple of 4 in a range of sizes from which on a condition holds; `None` if it does
/// not hold at the end of the range.
pub(super) fn first_size(
    (mut below, mut above): (u64, u64),
    holds: impl Fn(u64) -> bool,
) -> Option<u64> {
    if !holds(above) {
        return None;
    }
    while above - below > 4 {
        let middle = (below + above) / 8 * 4;
        if holds(middle) { above = middle } else { below = middle }
    }
    Some(above)
}
