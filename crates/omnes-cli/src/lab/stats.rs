//! Traffic on the links of a lab, per host.
//!
//! Packets and bytes are counted by the switch's ports, and shown as seen from the host; faults are
//! counted by the fault program; drops of full queues by the hold devices and the shapers.

use super::firmware::Firmware;
use super::namespace::{Spaces, inside};
use super::network::missing_tool;
use anyhow::{Context, Result};
use serde::Serialize;
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::process::Command;

/// Traffic on one host's link since the lab is up; faults since they were first set.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct HostStats {
    /// Packets the host sent.
    pub tx_packets: u64,
    /// Bytes the host sent, with Ethernet headers.
    pub tx_bytes: u64,
    /// Packets sent to the host, without those dropped on purpose or by the port's queue.
    pub rx_packets: u64,
    /// Bytes sent to the host, with Ethernet headers.
    pub rx_bytes: u64,
    /// Packets from the host for which faults were drawn.
    pub faulted_packets: u64,
    /// Of these: dropped on purpose.
    pub dropped: u64,
    /// Of these: duplicated.
    pub duplicated: u64,
    /// Of these: held for the delay.
    pub delayed: u64,
    /// Of these: held longer, so that later ones overtake.
    pub reordered: u64,
    /// Packets to the host for which loss was drawn.
    pub received: u64,
    /// Of these: dropped on purpose.
    pub receive_dropped: u64,
    /// Dropped because the hold loop was late or full: more than the lab can delay.
    pub hold_dropped: u64,
    /// Dropped by the full queue of the shaped switch port towards the host.
    pub queue_dropped: u64,
}

/// Counters of one interface in `/proc/net/dev`.
#[derive(Clone, Copy, Default)]
struct Device {
    rx_bytes: u64,
    rx_packets: u64,
    tx_bytes: u64,
    tx_packets: u64,
    tx_dropped: u64,
}

/// Reads the counters of all hosts.
pub fn read(
    spaces: &Spaces,
    firmware: Option<&Firmware>,
    is_shaped: bool,
) -> Result<Vec<HostStats>> {
    let (devices, queues) = inside(spaces.switch.as_fd(), || {
        let table = std::fs::read_to_string("/proc/thread-self/net/dev")?;
        let queues = if is_shaped { queue_drops()? } else { BTreeMap::new() };
        Ok((parse_devices(&table), queues))
    })
    .context("cannot read the switch's counters")?;
    (0..spaces.hosts.len())
        .map(|host| {
            let port = devices.get(&format!("p{host}")).copied().unwrap_or_default();
            let hold = devices.get(&format!("hold{host}")).copied().unwrap_or_default();
            let faults = firmware.map(|firmware| firmware.counters(host)).transpose()?;
            let faults = faults.unwrap_or_default();
            Ok(HostStats {
                tx_packets: port.rx_packets,
                tx_bytes: port.rx_bytes,
                rx_packets: port.tx_packets,
                rx_bytes: port.tx_bytes,
                faulted_packets: faults.packets,
                dropped: faults.dropped,
                duplicated: faults.duplicated,
                delayed: faults.delayed,
                reordered: faults.reordered,
                received: faults.received,
                receive_dropped: faults.receive_dropped,
                hold_dropped: hold.tx_dropped,
                queue_dropped: queues.get(&format!("p{host}")).copied().unwrap_or_default(),
            })
        })
        .collect()
}

fn parse_devices(table: &str) -> BTreeMap<String, Device> {
    let device = |line: &str| {
        let (name, numbers) = line.split_once(':')?;
        let numbers: Vec<u64> = numbers.split_whitespace().flat_map(str::parse).collect();
        let [rx_bytes, rx_packets, _, _, _, _, _, _, tx_bytes, tx_packets, _, tx_dropped, ..] =
            numbers[..]
        else {
            return None;
        };
        let device = Device { rx_bytes, rx_packets, tx_bytes, tx_packets, tx_dropped };
        Some((name.trim().to_owned(), device))
    };
    table.lines().filter_map(device).collect()
}

/// Packets dropped by the root queue of each interface in the calling thread's namespace.
fn queue_drops() -> Result<BTreeMap<String, u64>> {
    let output = Command::new("tc")
        .args(["-s", "-j", "qdisc", "show"])
        .output()
        .map_err(|error| missing_tool("tc", error))?;
    let queues: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout)?;
    let drops = |queue: &serde_json::Value| {
        let is_root = queue["root"].as_bool()?;
        is_root.then_some((queue["dev"].as_str()?.to_owned(), queue["drops"].as_u64()?))
    };
    Ok(queues.iter().filter_map(drops).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_table_is_parsed_by_column() {
        let table =
            "Inter-|  Receive\n face |bytes\n  p0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n";
        let devices = parse_devices(table);
        let port = devices["p0"];
        assert_eq!((port.rx_bytes, port.rx_packets), (1, 2));
        assert_eq!((port.tx_bytes, port.tx_packets, port.tx_dropped), (9, 10, 12));
        assert_eq!(devices.len(), 1);
    }
}
