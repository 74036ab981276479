//! Loads: hosts that send to random other hosts, and the resulting delivery.
//!
//! Hosts send packets of one length at random intervals to hosts drawn uniformly. The source's
//! queue is unbounded, so a load above the network's capacity fills it with packets (overload).
//! Counting starts after a warm-up and stops with the load; then no packets are created any more
//! and the remaining ones must be delivered: packets that are not delivered are in a deadlock.

use omnes_topo::network::Network;

use super::config::{Interface, Wires};
use super::fabric::{Counters, Event, Fabric};
use super::routes::Routes;
use crate::engine::{Random, Span, Time};

/// Load of the hosts, and its duration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Traffic {
    /// Bytes of a packet without its head.
    pub payload_bytes: u32,
    /// Mean time between two packets of a host.
    pub interval: Span,
    /// Time before counting.
    pub warm_up: Span,
    /// Duration of counting.
    pub counted: Span,
    /// Seed of intervals and destinations.
    pub seed: u64,
    /// What happens after the counted time.
    pub afterwards: Afterwards,
}

/// What happens when the load ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Afterwards {
    /// Nothing; packets stay where they are.
    Stop,
    /// The network runs until nothing moves.
    RunEmpty,
}

/// Result of a run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Outcome {
    /// Counters of the counted time: packets created, and packets delivered then.
    pub counted: Counters,
    /// Counters of the whole run.
    pub all: Counters,
    /// Packets not delivered: the packets of a deadlock, if the network ran until nothing moved.
    pub left: u64,
    /// Bytes delivered per microsecond and switch.
    pub accepted: f64,
    /// Bytes created per microsecond and switch.
    pub offered: f64,
    /// Number of events of the run.
    pub events: u64,
}

impl Outcome {
    /// Mean time from creation to delivery.
    pub fn latency_us(&self) -> f64 {
        self.counted.latency.as_us() / self.counted.delivered.max(1) as f64
    }
}

/// A network to run under loads.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'a> {
    /// Topology.
    pub network: &'a Network,
    /// Routes of the packets.
    pub routes: &'a Routes,
    /// Costs of links and switches.
    pub wires: Wires,
    /// Costs of interfaces.
    pub interface: Interface,
}

struct Load<'a> {
    fabric: Fabric<'a>,
    traffic: Traffic,
    random: Random,
    last_birth: Time,
}

impl Load<'_> {
    fn schedule(&mut self, host: u32) {
        let wait = Span::from_ps(self.random.below(2 * self.traffic.interval.as_ps()) + 1);
        if self.fabric.now + wait <= self.last_birth {
            self.fabric.after(wait, Event::Born { host });
        }
    }

    fn give_birth(&mut self, host: u32) {
        let others = u64::from(self.fabric.network.hosts()) - 1;
        let drawn = self.random.below(others) as u32;
        let to = drawn + u32::from(drawn >= host);
        let route = self.fabric.routes.number(host, to);
        let packet = self.fabric.packet(route, self.traffic.payload_bytes);
        self.fabric.post(host, packet);
        self.schedule(host);
    }

    fn run_until(&mut self, end: Time) {
        while let Some(event) = self.fabric.step(end) {
            match event {
                Event::Born { host } => self.give_birth(host),
                event => self.fabric.handle(event),
            }
        }
    }
}

/// Runs the load, then, if so configured, until nothing moves.
///
/// # Panics
/// If there are fewer than two hosts.
pub fn run(setting: Setting<'_>, traffic: Traffic) -> Outcome {
    let Setting { network, routes, wires, interface } = setting;
    assert!(network.hosts() > 1, "a host sends to others");
    let last_birth = Time::ZERO + traffic.warm_up + traffic.counted;
    let fabric = Fabric::new(network, routes, wires, interface);
    let random = Random::named(traffic.seed, "wormhole traffic", 0);
    let mut load = Load { fabric, traffic, random, last_birth };
    (0..network.hosts()).for_each(|host| load.schedule(host));
    load.run_until(Time::ZERO + traffic.warm_up);
    let before = load.fabric.counters;
    load.run_until(last_birth);
    let counted = difference(load.fabric.counters, before);
    if traffic.afterwards == Afterwards::RunEmpty {
        load.run_until(Time::from_ps(u64::MAX));
    }
    let per_switch = |packets: u64| {
        let bytes = packets as f64 * f64::from(traffic.payload_bytes);
        bytes / traffic.counted.as_us() / f64::from(network.switches())
    };
    Outcome {
        counted,
        all: load.fabric.counters,
        left: load.fabric.alive() as u64,
        accepted: per_switch(counted.delivered),
        offered: per_switch(counted.born),
        events: load.fabric.events,
    }
}

fn difference(after: Counters, before: Counters) -> Counters {
    let latency = Span::from_ps(after.latency.as_ps() - before.latency.as_ps());
    Counters {
        born: after.born - before.born,
        delivered: after.delivered - before.delivered,
        delivered_bytes: after.delivered_bytes - before.delivered_bytes,
        latency,
        forwarded: after.forwarded - before.forwarded,
        waited: after.waited - before.waited,
        overflowed: after.overflowed - before.overflowed,
        in_transit_max: after.in_transit_max,
    }
}
