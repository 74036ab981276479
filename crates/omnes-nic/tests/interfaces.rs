//! The agent detaches its firmware from the interface that currently has a name.
//!
//! Without root the tests print `skipped: needs root`, which `OMNES_REQUIRE=root` turns into a
//! failure.
#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

mod agent_rig;
mod common;

use agent_rig::Served;
use common::hosts::{Host, network};
use omnes_nic::agent::hooks;
use std::collections::BTreeMap;

/// Creates an interface named `twice`; returns its index.
fn make(host: &Host) -> u32 {
    host.command("ip link add twice type veth peer name other");
    host.command("ip addr add 198.51.100.1/24 dev twice");
    host.command("ip link set other up");
    host.command("ip link set twice up");
    host.interface_named("twice")
}

#[test]
fn interface_name_refers_to_its_current_interface() {
    let Some(hosts) = network(1) else { return };
    let agent = Served::usual(&hosts[0]);
    let client = agent.client();
    let first = make(&hosts[0]);
    client.attach("twice").unwrap();
    hosts[0].command("ip link delete twice");
    let second = make(&hosts[0]);
    assert_ne!(first, second);
    client.attach("twice").unwrap();
    let programs = || hosts[0].inside(|| hooks::at(second, &BTreeMap::new()).unwrap().len());
    assert_eq!(programs(), 2);
    client.detach("twice", false).unwrap();
    assert_eq!(programs(), 0);
    assert!(client.detach("eth9", false).unwrap_err().to_string().contains("no interface eth9"));
}
