//! Writes figures as a testbed.

use super::core::Core;
use super::machine::Machine;
use super::sockets::{Sockets, TRAIN};
use std::fmt::Write;
use std::path::Path;

/// Sizes of the short and the full packet that were measured.
const BYTES: (f64, f64) = (56.0, 1472.0);

/// Measured values; times in nanoseconds.
pub struct Figures {
    /// Number of ranks.
    pub ranks: u32,
    /// Number of cores that all ranks share, or 0.
    pub cores: u32,
    /// Times of calls that send and receive.
    pub sockets: Sockets,
    /// Times of the protocol machines.
    pub machine: Machine,
    /// Times of a core.
    pub core: Core,
    /// Time of a poll that finds nothing.
    pub look_ns: f64,
    /// Half of a round trip between ranks 0 and 1.
    pub half_round_trip_ns: f64,
    /// Barrier of ranks 0 and 1 by the kernel NIC.
    pub nic_barrier_ns: Option<f64>,
}

/// Components of a packet's cost.
struct Parts {
    train: f64,
    send: f64,
    send_byte: f64,
    batch: f64,
    receive: f64,
    receive_byte: f64,
    /// One copy of a packet in flight alone, and of one in a train.
    copy: f64,
    copy_in_train: f64,
}

impl Figures {
    fn parts(&self) -> Parts {
        let Sockets { short, full, train, short_to_all, train_to_all } = &self.sockets;
        let more = f64::from(self.ranks.saturating_sub(2).max(1));
        let copy = ((short_to_all.send_ns - short.send_ns) / more).max(0.0);
        let copy_of_train = ((train_to_all.send_ns - train.send_ns) / more).max(0.0);
        let train_packets = TRAIN as f64;
        let apart = |short: f64, full: f64, train: f64| {
            let in_train = ((train - full) / (train_packets - 1.0)).max(0.0);
            let byte = ((full - short) / (BYTES.1 - BYTES.0)).clamp(0.0, in_train / BYTES.1);
            let fixed = (in_train - byte * BYTES.1).max(0.0);
            (byte, fixed, (short - fixed - byte * BYTES.0).max(0.0))
        };
        let (send_byte, send, train_cost) = apart(short.send_ns, full.send_ns, train.send_ns);
        let (receive_byte, receive, batch) =
            apart(short.receive_ns, full.receive_ns, train.receive_ns);
        Parts {
            train: (train_cost - copy).max(0.0),
            send,
            send_byte,
            batch,
            receive,
            receive_byte,
            copy,
            copy_in_train: copy_of_train / train_packets,
        }
    }

    /// Text of the testbed file; its name is that of `path`.
    pub fn to_toml(&self, path: &Path) -> String {
        let Parts { train, send, send_byte, batch, receive, receive_byte, .. } = self.parts();
        let Parts { copy, copy_in_train, .. } = self.parts();
        let name = path.file_stem().map_or_else(|| "live".into(), |name| name.to_string_lossy());
        // TOML has the escapes of JSON.
        let name = serde_json::Value::from(&*name);
        let machine = self.machine.packet_ns / 2.0;
        let call = (self.machine.message_ns / 2.0 - machine).max(0.0);
        let known = call
            + train
            + send
            + batch
            + receive
            + copy
            + 2.0 * machine
            + (send_byte + receive_byte) * BYTES.0;
        let notice = (self.half_round_trip_ns - known).max(0.0);
        let post = call + train + send + machine + send_byte * BYTES.0 + copy + notice;
        let firmware = self.nic_barrier_ns.map(|time| ((time - post) / 3.0).max(0.0));
        let mut text = format!(
            "# Measured by `omnes tune --testbed` with {} ranks.\n{}name = {name}\n\
             title = \"a live network of {} ranks, as measured\"\n\n[host]\n",
            self.ranks,
            self.measured(),
            self.ranks
        );
        let mut line = |key: &str, value: String, source: &str| {
            let _ = writeln!(text, "{key} = {{ {value}, source = \"{source}\" }}");
        };
        if self.cores > 0 {
            line("cores", format!("count = {}", self.cores), "all ranks are on one machine");
            line("switch", fixed(self.core.switch_ns), "sched_yield between two threads of a core");
            line("look", fixed(self.look_ns), "a test of a receive for which nothing has come");
        }
        line("call", fixed(call), "the machine's work on a message, beside that on its packets");
        line("train", fixed(train), "one call that sends a short packet, less its copy's way");
        line("train_packets", format!("count = {TRAIN}"), "packets of a GSO train");
        let in_train = "one more packet of a train, and the machine's work on it";
        line("send", both(send + machine, send_byte), in_train);
        line("batch", fixed(batch), "one call that takes in a short packet");
        line("batch_packets", "count = 64".into(), "packets of one recvmmsg");
        let taken = "one more packet of a train taken in, and the machine's work on it";
        line("receive", both(receive + machine, receive_byte), taken);
        line("copy", both(0.0, self.core.copy_byte_ns), "a copy of 4 MiB");
        line(
            "receive_queue_bytes",
            "count = 4194304".into(),
            "the socket buffer that is asked for",
        );
        let _ = writeln!(
            text,
            "notice = {{ {}, source = \"what no other part explains\", origin = \"calibrated\", \
             points = [\"half a round trip of 8 bytes between ranks 0 and 1\"] }}",
            fixed(notice)
        );
        self.nic_and_network(&mut text, (copy, copy_in_train), firmware);
        text
    }

    /// Raw measurements, as TOML comments.
    fn measured(&self) -> String {
        let Sockets { short, full, train, short_to_all, train_to_all } = &self.sockets;
        let cases = [
            ("short packet", short),
            ("full packet", full),
            ("train", train),
            ("short packet to all", short_to_all),
            ("train to all", train_to_all),
        ];
        let mut text = String::new();
        for (name, times) in cases {
            let (send, receive) = (times.send_ns, times.receive_ns);
            let _ = writeln!(text, "# {name}: sent in {send:.0} ns, taken in in {receive:.0} ns");
        }
        let Machine { message_ns, packet_ns } = self.machine;
        let _ = writeln!(
            text,
            "# machines: {message_ns:.0} ns for a short message, {packet_ns:.0} ns for one more \
             packet, both sides\n# half a round trip of 8 bytes: {:.0} ns",
            self.half_round_trip_ns
        );
        if let Some(time) = self.nic_barrier_ns {
            let _ = writeln!(text, "# barrier of two by the kernel NIC: {time:.0} ns");
        }
        text
    }

    fn nic_and_network(&self, text: &mut String, copies: (f64, f64), firmware: Option<f64>) {
        let (copy, copy_in_train) = copies;
        let _ = write!(
            text,
            "\n[nic]\n\
             # The network is software: what a packet's way takes, it takes of the hosts' cores.\n\
             processors = \"host\"\n\
             transmit = {{ source = \"part of host.send\" }}\n\
             receive = {{ {}, source = \"one more copy of a train to all, by its packets\" }}\n\
             receive_train = {{ {}, source = \"one more copy to all, beside receive\" }}\n",
            fixed(copy_in_train),
            fixed((copy - copy_in_train).max(0.0)),
        );
        let Some(firmware) = firmware else { return self.network(text) };
        for key in ["bell", "step", "step_send"] {
            let _ = writeln!(
                text,
                "{key} = {{ {}, source = \"a third of a barrier of two by the kernel NIC, less \
                 its known parts\", origin = \"calibrated\", points = [\"nic:dissemination of \
                 ranks 0 and 1\"] }}",
                fixed(firmware)
            );
        }
        self.network(text);
    }

    fn network(&self, text: &mut String) {
        let _ = write!(
            text,
            "\n[link]\n\
             wire = {{ source = \"part of nic.receive: there is no wire\" }}\n\
             frame_bytes = {{ count = 66, source = \"UDP, IP, Ethernet, preamble and gap\" }}\n\
             payload_bytes = {{ count = 1432, source = \"1,500 bytes without headers\" }}\n\
             \n[switch]\n\
             forwarding = \"cut-through\"\n\
             when_full = \"drop\"\n\
             latency = {{ source = \"part of nic.receive\" }}\n"
        );
    }
}

fn fixed(ns: f64) -> String {
    format!("fixed_ns = {ns:.1}")
}

fn both(ns: f64, byte_ns: f64) -> String {
    format!("fixed_ns = {ns:.1}, byte_ns = {byte_ns:.4}")
}
