//! Checker of the channels' bounds: the packets that a sender has in flight, judged from packets
//! alone.
//!
//! For each ordered pair of ranks, channel and lane: the numbers handed out less those that an
//! acknowledgement has freed never exceed the window; numbers are issued without gaps; a new packet
//! is sent only within the credit last given by its receiver, but one packet is always allowed. A
//! packet that the receiver has rejected is not held there until it is sent again, so on other
//! lanes it does not count.

use omnes_proto::limits::{CREDIT_UNIT_BYTES, truesize};
use omnes_proto::packet::Destination;
use omnes_wire::{Flags, Header, Kind, Rank, Seq};
use std::collections::{BTreeMap, VecDeque};

/// A packet in flight.
#[derive(Debug)]
struct Charge {
    bytes: u32,
    /// The receiver has rejected the packet, and it has not been retransmitted.
    is_rejected: bool,
}

#[derive(Debug, Default)]
struct Flow {
    base: Seq,
    charges: VecDeque<Charge>,
}

impl Flow {
    fn next(&self) -> Seq {
        self.base.plus(self.charges.len() as u32)
    }

    fn push(&mut self, bytes: u32) {
        self.charges.push_back(Charge { bytes, is_rejected: false });
    }

    /// Bytes in flight.
    fn charged(&self) -> u32 {
        self.charges.iter().map(|charge| charge.bytes).sum()
    }

    /// Bytes in flight that the receiver may hold.
    fn held(&self) -> u32 {
        let held = self.charges.iter().filter(|charge| !charge.is_rejected);
        held.map(|charge| charge.bytes).sum()
    }

    fn send_again(&mut self, seq: Seq) {
        if let Some(charge) = self.charges.get_mut(seq.since(self.base) as usize) {
            charge.is_rejected = false;
        }
    }

    fn reject(&mut self) {
        self.charges.iter_mut().for_each(|charge| charge.is_rejected = true);
    }

    fn free_until(&mut self, expects: Seq) {
        if self.next().precedes(expects) {
            return;
        }
        while self.base.precedes(expects) {
            self.charges.pop_front();
            self.base = self.base.plus(1);
        }
    }
}

/// Known traffic from one rank to another on one channel.
#[derive(Debug)]
struct Pair {
    lanes: [Flow; LANES],
    credit_bytes: u32,
}

/// See the module header.
#[derive(Debug)]
pub(crate) struct Bounds {
    window_packets: u32,
    initial_credit_bytes: u32,
    pairs: BTreeMap<(Rank, Rank, u8), Pair>,
    /// Most packets that any lane has had in flight.
    pub(crate) window_packets_seen: u32,
}

/// Number of lanes of a channel, as distinguished by packets.
pub(crate) const LANES: usize = 3;

/// Index of the lane that a packet with these flags counts on.
pub(crate) fn lane_of(flags: Flags) -> usize {
    match (flags.has(Flags::BULK), flags.has(Flags::GRANTS)) {
        (true, _) => 1,
        (false, true) => 2,
        (false, false) => 0,
    }
}

fn lane(header: &Header) -> usize {
    lane_of(header.flags)
}

fn is_numbered(header: &Header) -> bool {
    matches!(header.kind, Kind::Data | Kind::Grant)
}

impl Bounds {
    pub(crate) fn new(window_packets: u32, initial_credit_bytes: u32) -> Self {
        let pairs = BTreeMap::new();
        Self { window_packets, initial_credit_bytes, pairs, window_packets_seen: 0 }
    }

    fn pair(&mut self, from: Rank, to: Rank, channel: u8) -> &mut Pair {
        let credit_bytes = self.initial_credit_bytes;
        self.pairs
            .entry((from, to, channel))
            .or_insert_with(|| Pair { lanes: Default::default(), credit_bytes })
    }

    /// A rank hands out a packet. The error names the bound that it broke.
    pub(crate) fn on_sent(
        &mut self,
        from: Rank,
        to: Destination,
        packet: &[u8],
    ) -> Result<(), String> {
        let Ok((header, _)) = Header::parse(packet) else { return Ok(()) };
        let Destination::Rank(to) = to else { return Ok(()) };
        if !is_numbered(&header) {
            return Ok(());
        }
        let window = self.window_packets;
        let pair = self.pair(from, to, header.channel.0);
        let next = pair.lanes[lane(&header)].next();
        if header.seq != next {
            if header.seq.precedes(next) {
                pair.lanes[lane(&header)].send_again(header.seq);
                return Ok(());
            }
            return Err(format!(
                "{from}>{to} skips from {} to {}",
                next.index(),
                header.seq.index()
            ));
        }
        let charge = truesize(packet.len() as u32);
        let own = lane(&header);
        let flows = pair.lanes.iter().enumerate();
        let counted = flows.map(|(at, flow)| if at == own { flow.charged() } else { flow.held() });
        let in_flight: u32 = counted.sum();
        let credit = pair.credit_bytes;
        if in_flight > 0 && in_flight + charge > credit {
            let text = format!("{from}>{to} sends {charge} over {in_flight} with credit {credit}");
            return Err(text);
        }
        let flow = &mut pair.lanes[own];
        flow.push(charge);
        let packets = flow.charges.len() as u32;
        self.window_packets_seen = self.window_packets_seen.max(packets);
        if packets > window {
            return Err(format!("{from}>{to} has {packets} packets in flight, window {window}"));
        }
        Ok(())
    }

    /// A rank accepts an authentic packet.
    pub(crate) fn on_taken(&mut self, from: Rank, to: Rank, packet: &[u8]) {
        let Ok((header, _)) = Header::parse(packet) else { return };
        if !matches!(header.kind, Kind::Data | Kind::Grant | Kind::Ack | Kind::Nack) {
            return;
        }
        let pair = self.pair(to, from, header.channel.0);
        if header.credits > 0 {
            pair.credit_bytes = u32::from(header.credits) * CREDIT_UNIT_BYTES;
        }
        let flow = &mut pair.lanes[lane(&header)];
        flow.free_until(header.expects);
        if header.kind == Kind::Nack && header.flags.has(Flags::REJECT) {
            flow.reject();
        }
    }
}
