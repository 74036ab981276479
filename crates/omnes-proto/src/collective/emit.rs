//! Outgoing packets.
//!
//! In each group steps go first, as other members wait for them; questions go last, and only if the
//! message they ask for is still missing by then.

use super::group::{Common, Group};
use super::interface::{Outbound, STEP_JOIN, STEP_RELEASE};
use super::network::Network;
use crate::packet::Destination;
use omnes_topo::Party;
use omnes_wire::{COMBINE_SHIFT, CommunicatorId, Flags, Header, Instant, Kind, Rank, Seq};

/// Header of a packet about barrier `epoch`.
pub(super) fn header(
    me: Rank,
    communicator: CommunicatorId,
    kind: Kind,
    epoch: u32,
    argument: u32,
) -> Header {
    Header { communicator, seq: Seq(epoch), argument, ..Header::blank(kind, me) }
}

impl Group {
    fn header(&self, common: &Common, kind: Kind, epoch: u32, argument: u32) -> Header {
        header(common.me, self.communicator, kind, epoch, argument)
    }

    /// Builds the message of `step` in barrier `epoch`, with the words that it carries.
    pub(super) fn step(&self, common: &Common, to: Destination, epoch: u32, step: u32) -> Outbound {
        let header = self.header(common, Kind::Step, epoch, step);
        Outbound::carrying(to, header, self.carries(epoch, step))
    }

    /// Hands out the next packet.
    pub(super) fn poll_transmit(&mut self, now: Instant, common: &mut Common) -> Option<Outbound> {
        if let Some(step) = self.next_step(common).or_else(|| self.next_inside(common)) {
            common.counters.steps_sent += 1;
            return Some(step);
        }
        if let Some(doorbell) = self.next_doorbell(common) {
            common.counters.doorbells += 1;
            return Some(doorbell);
        }
        if let Some(nack) = self.next_nack(common) {
            common.counters.nacks_sent += 1;
            return Some(nack);
        }
        let ask = self.next_hearsay(common).or_else(|| self.next_ask(now, common))?;
        common.counters.asks_sent += 1;
        Some(ask)
    }

    /// The next step of the network's part.
    fn next_step(&mut self, common: &Common) -> Option<Outbound> {
        let Network { table, .. } = self.network.as_ref()?;
        let steps = self.outbox.steps()?;
        let (epoch, step) = (steps.epoch, steps.sends.trailing_zeros());
        let mut is_over = true;
        let to = match table.send_to(step) {
            Party::Everybody if table.is_multicast() => Destination::Group,
            Party::Everybody => {
                let node = steps.next_node + u32::from(steps.next_node == table.own());
                steps.next_node = node + 1;
                let rest = (node + 1..table.size()).any(|node| node != table.own());
                is_over = !rest;
                Destination::Rank(self.members.leader(node))
            }
            Party::Rank(node) => Destination::Rank(self.members.leader(node.0)),
            Party::Nobody => unreachable!("the firmware sends only what the table has"),
        };
        if is_over {
            steps.sends &= steps.sends - 1;
        }
        let mut outbound = self.step(common, to, epoch, step);
        let is_to_all = to == Destination::Group;
        outbound.header.flags = outbound.header.flags.with_if(Flags::GROUP, is_to_all);
        Some(outbound)
    }

    /// Next message to a rank of this node.
    fn next_inside(&mut self, common: &Common) -> Option<Outbound> {
        if let Some(seat) = self.outbox.release.next() {
            let to = Destination::Rank(self.members.rank(seat));
            return Some(self.step(common, to, self.outbox.released, STEP_RELEASE));
        }
        let epoch = self.outbox.join.take()?;
        let leader = self.members.leader(self.members.own().node);
        Some(self.step(common, Destination::Rank(leader), epoch, STEP_JOIN))
    }

    /// First step, as a doorbell for the kernel NIC, which sends it when it may.
    fn next_doorbell(&mut self, common: &Common) -> Option<Outbound> {
        let (epoch, step) = self.outbox.doorbell.take()?;
        let Network { table, .. } = self.network.as_ref()?;
        let own = self.of_node();
        let argument = step | own.combine() << COMBINE_SHIFT;
        let header = self.header(common, Kind::Step, epoch, argument);
        let (node, flags) = match table.send_to(step) {
            Party::Rank(node) => (node.0, Flags::NONE),
            // The NIC sends it to all; the doorbell needs any address.
            _ => (u32::from(table.own() == 0), Flags::GROUP),
        };
        let communicator = self.communicator;
        let to = Destination::Doorbell { to: self.members.leader(node), communicator };
        Some(Outbound::carrying(to, Header { flags, ..header }, own.words()))
    }

    fn next_nack(&mut self, common: &Common) -> Option<Outbound> {
        let epoch = self.under_way()?;
        let step = self.outbox.nacks.step;
        let seat = loop {
            let seat = self.outbox.nacks.seats.pop()?;
            if self.is_missing(step, seat) {
                break seat;
            }
        };
        let (to, communicator) = (self.members.rank(seat), self.communicator);
        let to = match step {
            STEP_JOIN | STEP_RELEASE => Destination::Rank(to),
            _ if self.is_nic() => Destination::Nic { to, communicator },
            _ => Destination::Rank(to),
        };
        Some(Outbound::plain(to, self.header(common, Kind::StepNack, epoch, step)))
    }

    fn next_hearsay(&mut self, common: &Common) -> Option<Outbound> {
        let epoch = self.under_way()?;
        let to = self.members.rank(self.outbox.hearsay.pop()?);
        let header = self.header(common, Kind::StepAsk, epoch, 0);
        Some(Outbound::plain(Destination::Rank(to), header))
    }

    fn next_ask(&mut self, now: Instant, common: &Common) -> Option<Outbound> {
        let (epoch, seats) = (self.under_way()?, self.members.seats());
        let first = self.question.as_ref()?.next_seat;
        let next = self.missing(first).find(|(_, rank)| !common.departed.contains(rank));
        let question = self.question.as_mut().filter(|question| question.next_seat < seats)?;
        question.next_seat = next.map_or(seats, |(seat, _)| seat + 1);
        if question.next_seat == seats {
            question.again_at = Some(now + common.config.ask_interval);
        }
        let header = self.header(common, Kind::StepAsk, epoch, 0);
        next.map(|(_, rank)| Outbound::plain(Destination::Rank(rank), header))
    }
}
