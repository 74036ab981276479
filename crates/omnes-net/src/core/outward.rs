//! Outgoing packets: put into rings for the ranks of this node, lined up into trains for the other
//! peers and the group, and given to the sockets.

use super::Core;
use crate::cipher::{Cipher, SEALED_BYTES};
use crate::line::{Holding, OwnData, PacketData};
use crate::ring::Neighbours;
use omnes_proto::packet::{Destination, Head, Source, Transmit};
use omnes_wire::{Instant, Rank, carries_data};

/// Bytes put into rings instead of a line of trains, and bytes after which they are published.
const RING_BYTES_PER_LINE: usize = 64 << 10;
const RING_BYTES_SHOWN: usize = 16 << 10;

impl Core {
    /// Sends what may be sent, at most `lines_max` lines: between lines it pays to poll for
    /// answers, which free the window and report losses.
    pub(super) fn transmit(&mut self, now: Instant, lines_max: usize) {
        self.has_more = false;
        for _ in 0..lines_max {
            if !self.flush() || !self.endpoint.may_transmit() || !self.line_up(now) {
                return;
            }
        }
        self.has_more = self.flush();
    }

    /// Takes packets from the machines; false if there were none.
    fn line_up(&mut self, now: Instant) -> bool {
        self.line.clear();
        let (mut in_rings, mut shown) = (0, 0);
        while self.line.has_room() && in_rings < RING_BYTES_PER_LINE {
            let head = &mut self.line.heads[self.line.used];
            let Some(transmit) = self.endpoint.poll_transmit(now, head) else { break };
            let channel = transmit.channel;
            let lent = transmit.segment.map(|segment| PacketData {
                data: match segment.source {
                    Source::Coded => {
                        let data = self.line.coded.next(segment.bytes as usize);
                        self.memory.gather_coded(channel, self.endpoint.coded_parts(), data);
                        libc::iovec { iov_base: data.as_mut_ptr().cast(), iov_len: data.len() }
                    }
                    _ => self.memory.gather(channel, segment),
                },
                holding: Holding { channel, source: segment.source },
            });
            match transmit.to {
                Destination::Rank(rank) if self.rings.reaches(rank) => {
                    // SAFETY: `gather` gives memory that is valid for reading.
                    let lent = unsafe { inline(head, lent) };
                    // SAFETY: as above.
                    in_rings += unsafe { into_ring(&mut self.rings, rank, head, lent) };
                    if in_rings - shown >= RING_BYTES_SHOWN {
                        // The reader copies while the remaining packets are prepared [PM-R7].
                        self.rings.publish();
                        shown = in_rings;
                    }
                }
                // A packet without a route is lost, as on a network.
                to => {
                    let Some(route) = self.links.route(to, head) else { continue };
                    let lent = match &mut self.cipher {
                        Some(cipher) => {
                            // SAFETY: as above.
                            let lent = unsafe { seal(cipher, head, lent, &mut self.line.sealed) };
                            let copied = lent.map_or(0, |lent| lent.data.iov_len - SEALED_BYTES);
                            self.memory.copied_bytes += copied as u64;
                            lent
                        }
                        None => lent,
                    };
                    // SAFETY: as above.
                    let lent = unsafe { inline(head, lent) };
                    self.line.push(route, lent);
                    self.line_up_run(now, &transmit, lent);
                }
            }
        }
        self.rings.publish();
        self.line.fan_out(&mut self.links, self.me);
        in_rings > 0 || !self.line.trains.is_empty()
    }

    /// Lines up, in the same train, packets that continue the one that was lined up last.
    fn line_up_run(&mut self, now: Instant, transmit: &Transmit, lent: Option<PacketData>) {
        let Some(lent) = lent.filter(|_| self.cipher.is_none()) else { return };
        let (last, room) = (self.line.used - 1, self.line.room_in_train());
        let heads = &mut self.line.heads[last..=last + room];
        let packets = self.endpoint.continue_run(now, transmit, heads);
        self.line.push_run(packets, lent.data);
    }

    /// Sends the packets lined up; false if the socket is full.
    fn flush(&mut self) -> bool {
        let line = &mut self.line;
        if !line.is_pending() {
            return true;
        }
        line.sent += self.links.send(&line.trains[line.sent..], &mut line.parts, &mut line.batch);
        line.sent == line.trains.len()
    }
}

/// Puts a packet into the ring of a rank of this node; returns its length. Without room it is lost,
/// and will be repaired: the channels keep less in flight than the rings hold.
///
/// # Safety
/// The data must be valid for reading.
unsafe fn into_ring(
    rings: &mut Neighbours,
    rank: Rank,
    head: &Head,
    lent: Option<PacketData>,
) -> usize {
    let head = head.as_bytes();
    let head = libc::iovec { iov_base: head.as_ptr().cast_mut().cast(), iov_len: head.len() };
    let nothing = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
    let data = lent.map_or(nothing, |lent| lent.data);
    let parts = [head, data];
    // SAFETY: the head is borrowed, and the caller vouches for the data.
    unsafe { rings.push(rank, &parts[..1 + usize::from(lent.is_some())]) };
    head.iov_len + data.iov_len
}

/// Encrypts the data of a packet, if the packet is of a kind that carries data.
///
/// # Safety
/// The data must be valid for reading.
unsafe fn seal(
    cipher: &mut Cipher,
    head: &Head,
    lent: Option<PacketData>,
    sealed: &mut OwnData,
) -> Option<PacketData> {
    if !carries_data(head.as_bytes()) {
        assert!(lent.is_none(), "data would leave in the clear");
        return None;
    }
    let data = lent.map_or(&[][..], |PacketData { data, .. }| {
        // SAFETY: promised by the caller.
        unsafe { std::slice::from_raw_parts(data.iov_base.cast::<u8>(), data.iov_len) }
    });
    let sealed = sealed.next(data.len() + SEALED_BYTES);
    cipher.seal(head.as_bytes(), data, sealed);
    let data = libc::iovec { iov_base: sealed.as_mut_ptr().cast(), iov_len: sealed.len() };
    // The memory that was read may be returned to its owner.
    let holding = Holding { channel: 0, source: Source::Coded };
    Some(PacketData { data, holding })
}

/// Appends a few bytes of data to their head, because one part is sent faster than two.
///
/// # Safety
/// The data must be valid for reading.
unsafe fn inline(head: &mut Head, lent: Option<PacketData>) -> Option<PacketData> {
    let PacketData { data, holding } = lent?;
    // SAFETY: promised by the caller.
    let bytes = unsafe { std::slice::from_raw_parts(data.iov_base.cast::<u8>(), data.iov_len) };
    if head.try_append(bytes) { None } else { Some(PacketData { data, holding }) }
}
