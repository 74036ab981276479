//! The constants of `testbeds/pm-lanai2.toml`, each with its source.

use omnes_sim::engine::Span;
use omnes_sim::testbed::{Constant, Origin};
use serde::Deserialize;
use std::collections::BTreeMap;

const FILE: &str = include_str!("../../../../../testbeds/pm-lanai2.toml");

/// Costs of a host.
#[derive(Clone, Debug)]
pub(in crate::pm) struct Host {
    /// Creating a message and its descriptor.
    pub(in crate::pm) send: Span,
    /// Receiving a message.
    pub(in crate::pm) receive: Span,
    /// Words of a descriptor, written into SRAM.
    pub(in crate::pm) descriptor_words: u64,
    /// Words written to return a receive buffer.
    pub(in crate::pm) return_words: u64,
}

/// Costs of the bus between memory and SRAM.
#[derive(Clone, Debug)]
pub(in crate::pm) struct Bus {
    /// The host writes a word of SRAM.
    pub(in crate::pm) write_word: Span,
    /// The host reads a word of SRAM.
    pub(in crate::pm) read_word: Span,
    /// Bytes that a DMA moves per bus transaction.
    pub(in crate::pm) burst_bytes: u64,
    /// Delay before the first burst of a DMA.
    pub(in crate::pm) dma_start: Span,
    /// Time per byte, from memory to SRAM.
    pub(in crate::pm) dma_down_byte: Span,
    /// Time per byte, from SRAM to memory.
    pub(in crate::pm) dma_up_byte: Span,
}

/// Costs and memory of the NIC.
#[derive(Clone, Debug)]
pub(in crate::pm) struct Nic {
    /// Time per instruction.
    pub(in crate::pm) instruction: Span,
    /// Instructions to find the next task.
    pub(in crate::pm) dispatch: u64,
    /// Instructions to start an engine.
    pub(in crate::pm) engine: u64,
    /// Instructions of flow control for a packet.
    pub(in crate::pm) flow: u64,
    /// Size of its memory.
    pub(in crate::pm) sram_bytes: u64,
    /// Part of the memory used by program and variables.
    pub(in crate::pm) program_bytes: u64,
}

/// Links and switches.
#[derive(Clone, Debug)]
pub(in crate::pm) struct Link {
    /// Time per byte.
    pub(in crate::pm) byte: Span,
    /// Bytes around each message; an answer consists of these alone.
    pub(in crate::pm) frame_bytes: u64,
    /// Latency from the sender's link to the receiver's.
    pub(in crate::pm) switch: Span,
}

/// Sizes of a channel's buffers.
#[derive(Clone, Debug)]
pub(in crate::pm) struct Buffers {
    /// Longest message.
    pub(in crate::pm) message_bytes: u64,
    /// Most unanswered messages.
    pub(in crate::pm) send_records: u64,
    /// Bytes of a send record.
    pub(in crate::pm) send_record_bytes: u64,
    /// Number of messages of 8 bytes that fill the receive buffer.
    pub(in crate::pm) receive_records: u64,
    /// Bytes of a receive record.
    pub(in crate::pm) receive_record_bytes: u64,
}

/// Costs of a context switch besides the records.
#[derive(Clone, Debug)]
pub(in crate::pm) struct Switching {
    /// Words of a channel without messages.
    pub(in crate::pm) structure_words: u64,
    /// Time of the call.
    pub(in crate::pm) call: Span,
    /// The host's work on a record of the send buffer.
    pub(in crate::pm) send_record: Span,
}

/// All constants.
#[derive(Clone, Debug)]
pub(in crate::pm) struct Constants {
    /// See [`Host`].
    pub(in crate::pm) host: Host,
    /// See [`Bus`].
    pub(in crate::pm) bus: Bus,
    /// See [`Nic`].
    pub(in crate::pm) nic: Nic,
    /// See [`Link`].
    pub(in crate::pm) link: Link,
    /// See [`Buffers`].
    pub(in crate::pm) buffers: Buffers,
    /// See [`Switching`].
    pub(in crate::pm) switching: Switching,
    /// All constants as given in the file, with sources.
    pub(in crate::pm) all: Vec<Constant>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    #[serde(default)]
    ns: Option<f64>,
    #[serde(default)]
    count: Option<u64>,
    source: String,
    #[serde(default = "given")]
    origin: Origin,
    #[serde(default)]
    points: Vec<String>,
}

fn given() -> Origin {
    Origin::Given
}

type Table = BTreeMap<String, Entry>;

#[derive(Deserialize)]
struct File {
    #[serde(rename = "name")]
    _name: String,
    #[serde(rename = "title")]
    _title: String,
    #[serde(flatten)]
    tables: BTreeMap<String, Table>,
}

/// Removes entries from the tables; entries left at the end are unknown keys.
struct Reader {
    tables: BTreeMap<String, Table>,
    all: Vec<Constant>,
}

impl Reader {
    fn take(&mut self, table: &str, key: &str) -> Entry {
        let entry = self.tables.get_mut(table).and_then(|table| table.remove(key));
        let entry = entry.unwrap_or_else(|| panic!("the testbed has no {table}.{key}"));
        self.all.push(Constant {
            name: format!("{table}.{key}"),
            value: entry.ns.unwrap_or_default() + entry.count.unwrap_or_default() as f64,
            per_byte: 0.0,
            source: entry.source.clone(),
            origin: entry.origin,
            points: entry.points.clone(),
        });
        entry
    }

    fn span(&mut self, table: &str, key: &str) -> Span {
        let ns = self.take(table, key).ns;
        Span::from_ns_rounded(ns.unwrap_or_else(|| panic!("{table}.{key} has no `ns`")))
    }

    fn count(&mut self, table: &str, key: &str) -> u64 {
        let count = self.take(table, key).count;
        count.unwrap_or_else(|| panic!("{table}.{key} has no `count`"))
    }

    fn host(&mut self) -> Host {
        Host {
            send: self.span("host", "send"),
            receive: self.span("host", "receive"),
            descriptor_words: self.count("host", "descriptor_words"),
            return_words: self.count("host", "return_words"),
        }
    }

    fn bus(&mut self) -> Bus {
        Bus {
            write_word: self.span("bus", "write_word"),
            read_word: self.span("bus", "read_word"),
            burst_bytes: self.count("bus", "burst_bytes"),
            dma_start: self.span("bus", "dma_start"),
            dma_down_byte: self.span("bus", "dma_down_byte"),
            dma_up_byte: self.span("bus", "dma_up_byte"),
        }
    }

    fn nic(&mut self) -> Nic {
        Nic {
            instruction: self.span("nic", "instruction"),
            dispatch: self.count("nic", "dispatch_instructions"),
            engine: self.count("nic", "engine_instructions"),
            flow: self.count("nic", "flow_instructions"),
            sram_bytes: self.count("nic", "sram_bytes"),
            program_bytes: self.count("nic", "program_bytes"),
        }
    }

    fn link(&mut self) -> Link {
        Link {
            byte: self.span("link", "byte"),
            frame_bytes: self.count("link", "frame_bytes"),
            switch: self.span("link", "switch"),
        }
    }

    fn buffers(&mut self) -> Buffers {
        Buffers {
            message_bytes: self.count("channel", "message_bytes"),
            send_records: self.count("channel", "send_records"),
            send_record_bytes: self.count("channel", "send_record_bytes"),
            receive_records: self.count("channel", "receive_records"),
            receive_record_bytes: self.count("channel", "receive_record_bytes"),
        }
    }

    fn switching(&mut self) -> Switching {
        Switching {
            structure_words: self.count("switching", "structure_words"),
            call: self.span("switching", "call"),
            send_record: self.span("switching", "send_record"),
        }
    }
}

impl Constants {
    /// The constants of the built-in file.
    ///
    /// # Panics
    /// If the file is invalid, which a test would have found.
    pub(in crate::pm) fn built_in() -> Self {
        let file: File = toml::from_str(FILE).expect("the testbed is tested");
        let mut reader = Reader { tables: file.tables, all: Vec::new() };
        let (host, bus, nic) = (reader.host(), reader.bus(), reader.nic());
        let (link, buffers, switching) = (reader.link(), reader.buffers(), reader.switching());
        assert!(reader.tables.values().all(BTreeMap::is_empty), "the testbed has unknown keys");
        Self { host, bus, nic, link, buffers, switching, all: reader.all }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_constant_has_a_source_and_each_fitted_one_its_points() {
        for constant in Constants::built_in().all {
            assert!(constant.source.len() > 4, "{}", constant.name);
            let is_fitted = constant.origin == Origin::Calibrated;
            assert_eq!(is_fitted, !constant.points.is_empty(), "{}", constant.name);
        }
    }
}
