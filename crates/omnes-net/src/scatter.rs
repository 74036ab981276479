//! Reading a train straight into user memory.
//!
//! The head of the next datagram is peeked at; if the machine predicts where its data go, one call
//! reads the whole train there. The prediction holds for a train of consecutive packets, which is
//! what GRO produces. If it does not hold, nothing is lost: only memory without placed data was
//! overwritten, and the data are moved to their actual destination.
//!
//! If the memory has space for the heads, too, the train is read in one piece, and the data are
//! moved together afterwards, while they are in the cache: that costs less than two message parts
//! for each packet, which the kernel handles one by one. Otherwise, at the end of a message, the
//! kernel puts every head into a separate buffer and all data in place.

use crate::socket::{Received, TRAIN_BYTES_MAX, TRAIN_PACKETS_MAX, Take, UdpSocket};
use omnes_proto::packet::HEAD_BYTES_MAX;
use omnes_wire::{PACKET_OVERHEAD_BYTES, has_control_body};
use std::ptr::NonNull;

/// Trains of more packets are read by copying.
const PACKETS_MAX: usize = 2 * TRAIN_PACKETS_MAX;
const HEAD_STRIDE: usize = HEAD_BYTES_MAX;

/// Heads of a train, and a buffer for data that turn out to be in the wrong place.
pub(crate) struct Scatter {
    look: [u8; HEAD_BYTES_MAX],
    heads: Vec<u8>,
    rescue: Vec<u8>,
    is_rescued: bool,
    /// The heads of the last train read are still between its data.
    is_in_one_piece: bool,
    buffers: Vec<libc::iovec>,
}

// SAFETY: `buffers` is filled anew for each call and not dereferenced outside of it.
unsafe impl Send for Scatter {}

/// A train that was read.
pub(crate) struct ScatteredTrain {
    bytes: usize,
    packet_bytes: usize,
    head_bytes: usize,
    base: NonNull<u8>,
}

/// One packet of such a train.
pub(crate) struct ScatteredPacket<'a> {
    pub(crate) head: &'a [u8],
    pub(crate) bytes: usize,
}

/// True if a train can be read by scattering; ranks do not send trains of more packets.
pub(crate) fn has_room_for(seen: Received) -> bool {
    seen.bytes.div_ceil(seen.packet_bytes) <= PACKETS_MAX
}

impl Default for Scatter {
    fn default() -> Self {
        Self {
            look: [0; HEAD_BYTES_MAX],
            heads: vec![0; PACKETS_MAX * HEAD_STRIDE],
            rescue: vec![0; TRAIN_BYTES_MAX],
            is_rescued: false,
            is_in_one_piece: false,
            buffers: Vec::with_capacity(2 * PACKETS_MAX),
        }
    }
}

impl ScatteredTrain {
    pub(crate) fn packets(&self) -> usize {
        self.bytes.div_ceil(self.packet_bytes)
    }

    /// Length in bytes of each packet except the last.
    pub(crate) fn packet_bytes(&self) -> usize {
        self.packet_bytes
    }

    fn packet_length(&self, index: usize) -> usize {
        self.packet_bytes.min(self.bytes - index * self.packet_bytes)
    }

    /// Length in bytes of the head that was read separately from the data.
    fn head_length(&self, index: usize) -> usize {
        let head = if index == 0 { self.head_bytes } else { PACKET_OVERHEAD_BYTES };
        head.min(self.packet_length(index))
    }

    /// Offset of the data of packet `index`, counted from the first data byte of the train.
    fn data_offset(&self, index: usize) -> usize {
        let whole = self.packet_bytes - PACKET_OVERHEAD_BYTES;
        match index {
            0 => 0,
            _ => index * whole - (self.head_bytes - PACKET_OVERHEAD_BYTES),
        }
    }
}

impl Scatter {
    /// Peeks at the next datagram; `None` if there is none.
    pub(crate) fn look(&mut self, socket: &mut UdpSocket) -> Option<Received> {
        let mut buffers =
            [libc::iovec { iov_base: self.look.as_mut_ptr().cast(), iov_len: HEAD_BYTES_MAX }];
        socket.receive_scattered(&mut buffers, Take::Look)
    }

    /// The bytes that were peeked at.
    pub(crate) fn head(&self, seen: Received) -> &[u8] {
        &self.look[..seen.bytes.min(seen.packet_bytes).min(HEAD_BYTES_MAX)]
    }

    /// Reads the train that was peeked at, from `base` on, where at most `bytes_max` bytes may be
    /// written; data beyond them go to the rescue buffer. [`Self::parts`] returns the train as it
    /// arrived; for all other uses it must be [sorted](Self::sort) first.
    pub(crate) fn read(
        &mut self,
        socket: &mut UdpSocket,
        seen: Received,
        base: NonNull<u8>,
        bytes_max: usize,
        head_bytes: usize,
    ) -> Option<ScatteredTrain> {
        let train = ScatteredTrain {
            bytes: seen.bytes.min(TRAIN_BYTES_MAX),
            packet_bytes: seen.packet_bytes,
            head_bytes,
            base,
        };
        self.is_in_one_piece = train.bytes <= bytes_max;
        self.is_rescued = if self.is_in_one_piece {
            self.line_up_whole(&train);
            false
        } else {
            self.line_up(&train, bytes_max) > bytes_max
        };
        let got = socket.receive_scattered(&mut self.buffers, Take::Out)?;
        // No other thread reads this socket: the datagram is the one that was peeked at.
        assert!(got.bytes == seen.bytes, "the datagram changed between look and read");
        if self.is_rescued {
            self.keep_prefix(&train, bytes_max);
        }
        Some(train)
    }

    /// Creates one io vector for the whole train.
    fn line_up_whole(&mut self, train: &ScatteredTrain) {
        self.buffers.clear();
        let iov_base = train.base.as_ptr().cast();
        self.buffers.push(libc::iovec { iov_base, iov_len: train.bytes });
    }

    /// Separates the heads of the train that was just read from its data, and makes the data
    /// contiguous; returns how many bytes were moved.
    pub(crate) fn sort(&mut self, train: &ScatteredTrain) -> u64 {
        if !std::mem::take(&mut self.is_in_one_piece) {
            return 0;
        }
        for index in 0..train.packets() {
            let (start, length) = (index * train.packet_bytes, train.packet_length(index));
            let head_length = train.head_length(index);
            let head = &mut self.heads[index * HEAD_STRIDE..][..head_length];
            // SAFETY: `read` has written all packets from `base` on. The data of each packet move
            // towards `base`, by the heads before them, so later data are not touched.
            unsafe {
                let packet = train.base.add(start);
                packet.copy_to_nonoverlapping(NonNull::from(&mut *head).cast(), head_length);
                let data = packet.add(head_length);
                data.copy_to(train.base.add(train.data_offset(index)), length - head_length);
            }
        }
        train.bytes as u64
    }

    /// Creates the io vectors; returns the bytes of data in the train.
    fn line_up(&mut self, train: &ScatteredTrain, bytes_max: usize) -> usize {
        self.buffers.clear();
        let mut data = 0;
        for index in 0..train.packets().min(PACKETS_MAX) {
            let head_length = train.head_length(index);
            let head = &mut self.heads[index * HEAD_STRIDE..][..head_length];
            self.buffers
                .push(libc::iovec { iov_base: head.as_mut_ptr().cast(), iov_len: head_length });
            let length = train.packet_length(index) - head_length;
            let inside = length.min(bytes_max.saturating_sub(data));
            // SAFETY: `data + inside <= bytes_max`, which the caller vouches for from `base` on.
            let place = unsafe { train.base.add(data.min(bytes_max)) };
            self.buffers.push(libc::iovec { iov_base: place.as_ptr().cast(), iov_len: inside });
            if inside < length {
                let rest = &mut self.rescue[data + inside..data + length];
                let iov_len = rest.len();
                self.buffers.push(libc::iovec { iov_base: rest.as_mut_ptr().cast(), iov_len });
            }
            data += length;
        }
        data
    }

    /// The last train read, as it arrived.
    pub(crate) fn parts(&mut self) -> &mut [libc::iovec] {
        &mut self.buffers
    }

    /// Packet `index` with its whole head, including the control body.
    pub(crate) fn packet(&mut self, train: &ScatteredTrain, index: usize) -> ScatteredPacket<'_> {
        let bytes = train.packet_length(index);
        let read = train.head_length(index);
        let mut head_bytes = read;
        let start = index * HEAD_STRIDE;
        if index > 0 && has_control_body(&self.heads[start..start + read]) {
            // Not the kind of packet that was predicted: its control body was read as data.
            head_bytes = bytes.min(HEAD_BYTES_MAX);
            let body = self.rescue(train, index, read)[..head_bytes - read].to_vec();
            self.heads[start + read..start + head_bytes].copy_from_slice(&body);
        }
        ScatteredPacket { head: &self.heads[start..start + head_bytes], bytes }
    }

    /// Heads of the packets from `index` on that are as long as the first, as far as they were read
    /// separately.
    pub(crate) fn heads(
        &self,
        train: &ScatteredTrain,
        index: usize,
    ) -> impl Iterator<Item = &[u8]> + Clone {
        let whole = train.bytes / train.packet_bytes;
        let lengths = (index..whole).map(|index| (index, train.head_length(index)));
        lengths.map(|(index, length)| &self.heads[index * HEAD_STRIDE..][..length])
    }

    /// True if the data of packet `index`, which start at `packet_offset`, were read to `target`.
    /// Data for a slot of the pool, which have no target, never were.
    pub(crate) fn is_in_place(
        &self,
        train: &ScatteredTrain,
        index: usize,
        packet_offset: usize,
        target: Option<NonNull<u8>>,
    ) -> bool {
        if self.is_rescued || packet_offset != train.head_length(index) {
            return false;
        }
        // SAFETY: inside the memory that `read` was given for this train.
        target == Some(unsafe { train.base.add(train.data_offset(index)) })
    }

    /// Saves all data of the train from being overwritten, then returns those of packet `index`.
    pub(crate) fn rescue(
        &mut self,
        train: &ScatteredTrain,
        index: usize,
        packet_offset: usize,
    ) -> &[u8] {
        if !self.is_rescued {
            let last = train.packets() - 1;
            let data =
                train.data_offset(last) + train.packet_length(last) - train.head_length(last);
            self.is_rescued = true;
            self.keep_prefix(train, data);
        }
        let start = train.data_offset(index);
        let length = train.packet_length(index) - train.head_length(index);
        // If a packet's data start later than predicted, the first bytes that were read as data
        // belong to the head.
        let skipped = packet_offset.saturating_sub(train.head_length(index)).min(length);
        &self.rescue[start + skipped..start + length]
    }

    fn keep_prefix(&mut self, train: &ScatteredTrain, bytes: usize) {
        // SAFETY: the memory from `base` on was written by `read` and is valid for `bytes`.
        let data = unsafe { std::slice::from_raw_parts(train.base.as_ptr(), bytes) };
        self.rescue[..bytes].copy_from_slice(data);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use omnes_wire::ENVELOPE_BYTES;

    #[test]
    fn only_message_data_of_an_unrescued_train_are_in_place() {
        let mut memory = [0u8; 4096];
        let base = NonNull::from(&mut memory).cast();
        let head_bytes = PACKET_OVERHEAD_BYTES;
        let train = ScatteredTrain { bytes: 3000, packet_bytes: 1000, head_bytes, base };
        let mut scatter = Scatter::default();
        assert!(scatter.is_in_place(&train, 0, head_bytes, Some(base)));
        assert!(!scatter.is_in_place(&train, 1, head_bytes, Some(base)));
        assert!(!scatter.is_in_place(&train, 1, head_bytes, None));
        scatter.is_rescued = true;
        assert!(!scatter.is_in_place(&train, 0, head_bytes, Some(base)));
        assert!(!scatter.is_in_place(&train, 1, head_bytes, None));
    }

    #[test]
    fn train_with_more_packets_than_head_slots_is_not_scattered() {
        let train = |packets| Received { bytes: packets * 100, packet_bytes: 100 };
        assert!(has_room_for(train(PACKETS_MAX)));
        assert!(!has_room_for(Received { bytes: PACKETS_MAX * 100 + 1, packet_bytes: 100 }));
        assert!(!has_room_for(train(PACKETS_MAX + 1)));
    }

    #[test]
    fn contiguous_train_is_sorted_into_heads_and_data() {
        let head_bytes = PACKET_OVERHEAD_BYTES + ENVELOPE_BYTES;
        let lengths =
            [(head_bytes, 1000), (PACKET_OVERHEAD_BYTES, 1000), (PACKET_OVERHEAD_BYTES, 500)];
        let (mut memory, mut heads, mut data) = (Vec::new(), Vec::new(), Vec::new());
        for (index, (head, packet)) in lengths.into_iter().enumerate() {
            let bytes: Vec<u8> = (0..packet).map(|at| (7 * index + at) as u8).collect();
            heads.push(bytes[..head].to_vec());
            data.extend_from_slice(&bytes[head..]);
            memory.extend(bytes);
        }
        let base = NonNull::from(&mut memory[..]).cast();
        let train = ScatteredTrain { bytes: 2500, packet_bytes: 1000, head_bytes, base };
        let mut scatter = Scatter { is_in_one_piece: true, ..Scatter::default() };
        scatter.sort(&train);
        for (index, head) in heads.iter().enumerate() {
            assert_eq!(scatter.packet(&train, index).head, head);
        }
        assert_eq!(memory[..data.len()], data);
        let second = 1000 - head_bytes..2000 - head_bytes - PACKET_OVERHEAD_BYTES;
        assert_eq!(scatter.rescue(&train, 1, PACKET_OVERHEAD_BYTES), &data[second]);
    }
}
