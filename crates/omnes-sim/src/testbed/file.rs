//! The TOML form of a testbed.

use super::{
    Forwarding, Host, Link, Nic, Processors, Progress, Protocol, Switch, Testbed, WhenFull,
};
use crate::engine::{Cost, Span};
use omnes_proto::limits::{PAYLOAD_BYTES_MAX, PAYLOAD_BYTES_MIN, WINDOW_MESSAGES_MAX};
use serde::Deserialize;
use std::fmt::Display;
use thiserror::Error;

/// An invalid testbed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum TestbedError {
    /// Not TOML, or not of the expected form.
    #[error("{0}")]
    Syntax(String),
    /// A constant without a source.
    #[error("`{name}` has no source; say where it comes from in `source = \"...\"`")]
    NoSource {
        /// The constant.
        name: String,
    },
    /// A constant out of range.
    #[error("`{name}` is {value}; it must be {must}")]
    OutOfRange {
        /// The constant.
        name: String,
        /// Its value.
        value: String,
        /// The valid range.
        must: &'static str,
    },
    /// The testbed does not exist.
    #[error("no testbed `{name}`; there are {there_are}; or give the path of a TOML file")]
    Unknown {
        /// The name asked for.
        name: String,
        /// All names.
        there_are: String,
    },
}

/// Origin of a constant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// A parameter or a measurement of its source.
    Given,
    /// Fitted to points.
    Calibrated,
    /// A guess.
    Assumed,
}

/// A constant as given in the file.
#[derive(Clone, PartialEq, Debug)]
pub struct Constant {
    /// Table and key.
    pub name: String,
    /// In nanoseconds, bytes or packets, depending on the constant.
    pub value: f64,
    /// Part per byte, in nanoseconds.
    pub per_byte: f64,
    /// Its source.
    pub source: String,
    /// Kind of source.
    pub origin: Origin,
    /// Points that the constant was fitted to.
    pub points: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    #[serde(default)]
    fixed_ns: f64,
    #[serde(default)]
    byte_ns: f64,
    #[serde(default)]
    count: Option<f64>,
    #[serde(default)]
    source: String,
    #[serde(default = "given")]
    origin: Origin,
    #[serde(default)]
    points: Vec<String>,
}

fn given() -> Origin {
    Origin::Given
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HostTable {
    cores: Option<Entry>,
    switch: Option<Entry>,
    look: Option<Entry>,
    call: Option<Entry>,
    train: Option<Entry>,
    train_packets: Option<Entry>,
    send: Entry,
    notice: Option<Entry>,
    batch: Option<Entry>,
    batch_packets: Option<Entry>,
    receive: Entry,
    copy: Option<Entry>,
    report_send: Option<Entry>,
    report_receive: Option<Entry>,
    granted_send: Option<Entry>,
    granted_receive: Option<Entry>,
    receive_queue_bytes: Option<Entry>,
    #[serde(default)]
    progress: Progress,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NicTable {
    processors: Processors,
    transmit: Entry,
    again: Option<Entry>,
    receive: Entry,
    step_receive: Option<Entry>,
    receive_train: Option<Entry>,
    step: Option<Entry>,
    step_send: Option<Entry>,
    bell: Option<Entry>,
    show: Option<Entry>,
    trigger: Option<Entry>,
    record: Option<Entry>,
    answer: Option<Entry>,
    settle: Option<Entry>,
    latency: Option<Entry>,
    multicast: Option<Entry>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProtocolTable {
    eager_bytes: Option<Entry>,
    window_messages: Option<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkTable {
    wire: Entry,
    latency: Option<Entry>,
    frame_bytes: Option<Entry>,
    payload_bytes: Entry,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SwitchTable {
    forwarding: Forwarding,
    when_full: WhenFull,
    latency: Entry,
    copy: Option<Entry>,
    buffer_bytes: Option<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    title: String,
    host: HostTable,
    nic: NicTable,
    link: LinkTable,
    switch: SwitchTable,
    #[serde(default)]
    protocol: ProtocolTable,
}

/// A value without a limit of its own.
const UNLIMITED: u64 = u64::MAX / 2;

/// Above this limit numbers are neither exact nor intended.
const COUNT_MAX: f64 = 1e15;
/// One second; `BYTE_NS_MAX` is one millisecond per byte.
const FIXED_NS_MAX: f64 = 1e9;
const BYTE_NS_MAX: f64 = 1e6;

/// Checks and converts the entries of the file, and keeps a list of them.
#[derive(Default)]
struct Reader {
    constants: Vec<Constant>,
    wrong: Option<TestbedError>,
}

impl Reader {
    /// Records an error, unless there was an earlier one.
    fn refuse(&mut self, name: &str, value: impl Display, must: &'static str) {
        let (name, value) = (name.to_owned(), value.to_string());
        self.wrong.get_or_insert(TestbedError::OutOfRange { name, value, must });
    }

    fn note(&mut self, name: &str, entry: &Entry) {
        let name = name.to_owned();
        let value = entry.count.unwrap_or(entry.fixed_ns);
        if entry.source.trim().is_empty() {
            self.wrong.get_or_insert(TestbedError::NoSource { name: name.clone() });
        }
        let is_right = |number: f64, most: f64| (0.0..=most).contains(&number);
        if !is_right(entry.count.unwrap_or(0.0), COUNT_MAX) {
            self.refuse(&name, value, "a count from 1 to 1e15");
        }
        if entry.count.is_some_and(|count| count.fract() != 0.0) {
            self.refuse(&name, value, "a whole number");
        }
        if !is_right(entry.fixed_ns, FIXED_NS_MAX) {
            self.refuse(&name, entry.fixed_ns, "0 to 1e9 ns");
        }
        if !is_right(entry.byte_ns, BYTE_NS_MAX) {
            self.refuse(&name, format_args!("{} ns for each byte", entry.byte_ns), "0 to 1e6 ns");
        }
        if entry.origin == Origin::Calibrated && entry.points.is_empty() {
            self.refuse(&name, "calibrated", "given with the points that it was fitted to");
        }
        let Entry { byte_ns: per_byte, source, origin, points, .. } = entry.clone();
        self.constants.push(Constant { name, value, per_byte, source, origin, points });
    }

    fn cost(&mut self, name: &str, entry: Option<&Entry>) -> Cost {
        let Some(entry) = entry else { return Cost::default() };
        self.note(name, entry);
        if let Some(count) = entry.count {
            self.refuse(name, format_args!("a count of {count}"), "`fixed_ns` and `byte_ns`");
        }
        Cost {
            fixed: Span::from_ns_rounded(entry.fixed_ns),
            per_byte: Span::from_ns_rounded(entry.byte_ns),
        }
    }

    fn maybe_cost(&mut self, name: &str, entry: Option<&Entry>) -> Option<Cost> {
        entry.map(|entry| self.cost(name, Some(entry)))
    }

    fn count(&mut self, name: &str, entry: Option<&Entry>, usual: u64) -> u64 {
        let Some(entry) = entry else { return usual };
        self.note(name, entry);
        if entry.fixed_ns != 0.0 || entry.byte_ns != 0.0 {
            self.refuse(name, "a time", "`count`");
        }
        match entry.count {
            Some(count) if count >= 1.0 => count as u64,
            Some(count) => {
                self.refuse(name, count, "at least 1");
                usual
            }
            None => {
                self.refuse(name, "not a number", "given as `count`");
                usual
            }
        }
    }

    /// A count that must fit in 32 bits.
    fn number(&mut self, name: &str, entry: Option<&Entry>, usual: u32) -> u32 {
        let count = self.count(name, entry, u64::from(usual));
        u32::try_from(count).unwrap_or_else(|_| {
            self.refuse(name, count, "below 2^32");
            usual
        })
    }

    /// A time without a part per byte.
    fn time(&mut self, name: &str, entry: Option<&Entry>) -> Span {
        let cost = self.cost(name, entry);
        if cost.per_byte != Span::ZERO {
            self.refuse(name, "a time for each byte", "`fixed_ns` alone");
        }
        cost.fixed
    }

    fn host(&mut self, table: &HostTable) -> Host {
        Host {
            cores: self.number("host.cores", table.cores.as_ref(), 0),
            switch: self.cost("host.switch", table.switch.as_ref()),
            look: self.cost("host.look", table.look.as_ref()),
            call: self.cost("host.call", table.call.as_ref()),
            train: self.cost("host.train", table.train.as_ref()),
            train_packets: self.number("host.train_packets", table.train_packets.as_ref(), 1),
            send: self.cost("host.send", Some(&table.send)),
            notice: self.cost("host.notice", table.notice.as_ref()),
            batch: self.cost("host.batch", table.batch.as_ref()),
            batch_packets: self.number("host.batch_packets", table.batch_packets.as_ref(), 1),
            receive: self.cost("host.receive", Some(&table.receive)),
            copy: self.cost("host.copy", table.copy.as_ref()),
            report_send: self.maybe_cost("host.report_send", table.report_send.as_ref()),
            report_receive: self.maybe_cost("host.report_receive", table.report_receive.as_ref()),
            granted_send: self.maybe_cost("host.granted_send", table.granted_send.as_ref()),
            granted_receive: self
                .maybe_cost("host.granted_receive", table.granted_receive.as_ref()),
            progress: table.progress,
            receive_queue_bytes: self.count(
                "host.receive_queue_bytes",
                table.receive_queue_bytes.as_ref(),
                UNLIMITED,
            ),
        }
    }

    fn nic(&mut self, table: &NicTable) -> Nic {
        let transmit = self.cost("nic.transmit", Some(&table.transmit));
        let again = match &table.again {
            Some(entry) => self.cost("nic.again", Some(entry)),
            None => transmit,
        };
        let step_send = match &table.step_send {
            Some(entry) => self.cost("nic.step_send", Some(entry)),
            None => transmit,
        };
        let receive = self.cost("nic.receive", Some(&table.receive));
        let step_receive = match &table.step_receive {
            Some(entry) => self.cost("nic.step_receive", Some(entry)),
            None => receive,
        };
        Nic {
            processors: table.processors,
            transmit,
            again,
            receive,
            step_receive,
            receive_train: self.cost("nic.receive_train", table.receive_train.as_ref()),
            step: self.cost("nic.step", table.step.as_ref()),
            step_send,
            bell: self.cost("nic.bell", table.bell.as_ref()),
            show: self.cost("nic.show", table.show.as_ref()),
            trigger: self.cost("nic.trigger", table.trigger.as_ref()),
            record: self.cost("nic.record", table.record.as_ref()),
            answer: self.cost("nic.answer", table.answer.as_ref()),
            settle: self.cost("nic.settle", table.settle.as_ref()),
            latency: self.time("nic.latency", table.latency.as_ref()),
            multicast: self.time("nic.multicast", table.multicast.as_ref()),
        }
    }

    fn link(&mut self, table: &LinkTable) -> Link {
        if table.wire.fixed_ns != 0.0 {
            let fixed = format_args!("a fixed time of {} ns", table.wire.fixed_ns);
            let must = "`byte_ns` alone; what a frame takes besides is `link.frame_bytes`";
            self.refuse("link.wire", fixed, must);
        }
        Link {
            wire: self.cost("link.wire", Some(&table.wire)),
            latency: self.time("link.latency", table.latency.as_ref()),
            frame_bytes: match &table.frame_bytes {
                Some(entry) => self.count("link.frame_bytes", Some(entry), 0),
                None => 0,
            },
            payload_bytes: self.payload("link.payload_bytes", &table.payload_bytes),
        }
    }

    /// Payload bytes that our packets can carry.
    fn payload(&mut self, name: &str, entry: &Entry) -> u64 {
        let payload = self.count(name, Some(entry), 1);
        if !(u64::from(PAYLOAD_BYTES_MIN)..=u64::from(PAYLOAD_BYTES_MAX)).contains(&payload) {
            self.refuse(name, payload, "between 256 and 8908 bytes, as in our packets");
        }
        payload
    }

    fn protocol(&mut self, table: &ProtocolTable) -> Protocol {
        let mut count = |name, entry: &Option<Entry>| {
            entry.as_ref().map(|entry| self.number(name, Some(entry), 1))
        };
        let protocol = Protocol {
            eager_bytes: count("protocol.eager_bytes", &table.eager_bytes),
            window_messages: count("protocol.window_messages", &table.window_messages),
        };
        if let Some(messages) = protocol.window_messages.filter(|it| *it > WINDOW_MESSAGES_MAX) {
            self.refuse("protocol.window_messages", messages, "at most 65536, as in our protocol");
        }
        protocol
    }

    fn switch(&mut self, table: &SwitchTable) -> Switch {
        Switch {
            latency: self.time("switch.latency", Some(&table.latency)),
            copy: self.time("switch.copy", table.copy.as_ref()),
            forwarding: table.forwarding,
            buffer_bytes: self.count("switch.buffer_bytes", table.buffer_bytes.as_ref(), UNLIMITED),
            when_full: table.when_full,
        }
    }
}

pub(super) fn parse(text: &str) -> Result<Testbed, TestbedError> {
    let file: File = toml::from_str(text).map_err(|e| TestbedError::Syntax(e.to_string()))?;
    let mut reader = Reader::default();
    let host = reader.host(&file.host);
    let nic = reader.nic(&file.nic);
    let link = reader.link(&file.link);
    let switch = reader.switch(&file.switch);
    let protocol = reader.protocol(&file.protocol);
    let File { name, title, .. } = file;
    match reader.wrong {
        Some(error) => Err(error),
        None => Ok(Testbed {
            name,
            title,
            host,
            nic,
            link,
            switch,
            protocol,
            constants: reader.constants,
        }),
    }
}
