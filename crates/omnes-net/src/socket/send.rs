//! Sending trains: many per system call, or packet by packet without GSO.

use super::{CONTROL_BYTES, Control, TRAINS_PER_CALL, Train, UdpSocket};
use rustix::net::{SendFlags, send, sendto};
use socket2::SockAddr;
use std::io;

impl UdpSocket {
    /// Sends trains in order; returns how many the kernel took. Fewer than given means that its
    /// buffer is full: the remaining trains must be retried first. A train that cannot be sent at
    /// all (for instance without a route) counts as sent and lost.
    pub fn send(&mut self, trains: &[Train], parts: &mut [libc::iovec]) -> usize {
        let mut done = 0;
        while done < trains.len() {
            if let Some(sent) = self.send_plain(&trains[done], parts) {
                match sent {
                    Ok(()) => done += 1,
                    Err(error) => match self.on_send_error(&error, 1) {
                        AfterError::Full => return done,
                        AfterError::Again => {}
                        AfterError::Skip => done += 1,
                    },
                }
                continue;
            }
            if !self.segments() && trains[done].packets > 1 {
                if !self.send_packetwise(&trains[done], parts) {
                    return done;
                }
                self.segmentation.on_packetwise();
                done += 1;
                continue;
            }
            let batch = self.batch_end(trains, done);
            match self.send_batch(&trains[done..batch], parts) {
                Ok(sent) => {
                    for train in &trains[done..done + sent] {
                        self.count_sent(train, parts);
                        if train.packets > 1 {
                            self.segmentation.on_whole();
                        }
                    }
                    done += sent;
                }
                Err(error) => match self.on_send_error(&error, trains[done].packets) {
                    AfterError::Full => return done,
                    AfterError::Again => {}
                    AfterError::Skip => done += 1,
                },
            }
        }
        done
    }

    /// Sends a packet in one part by the cheapest system call; `None` for any other train.
    fn send_plain(&mut self, train: &Train, parts: &[libc::iovec]) -> Option<io::Result<()>> {
        if train.packets > 1 || train.parts.1 - train.parts.0 > 1 {
            return None;
        }
        let part = parts[train.parts.0];
        // SAFETY: the part points to memory that the caller keeps alive and does not change.
        let data = unsafe { std::slice::from_raw_parts(part.iov_base.cast(), part.iov_len) };
        self.counters.send_calls += 1;
        // Not by libc, in which these calls are cancellation points and cost more.
        let sent = match train.to {
            None => send(&self.socket, data, SendFlags::DONTWAIT),
            Some(to) => sendto(&self.socket, data, SendFlags::DONTWAIT, &to),
        };
        if let Err(error) = sent {
            return Some(Err(error.into()));
        }
        self.count_sent(train, parts);
        Some(Ok(()))
    }

    /// True if the kernel is to cut trains into packets.
    pub(super) fn segments(&self) -> bool {
        self.offloads.gso && self.segmentation.is_on()
    }

    fn batch_end(&self, trains: &[Train], from: usize) -> usize {
        let most = trains.len().min(from + TRAINS_PER_CALL);
        let is_plain = |train: &Train| train.packets == 1 && train.parts.1 - train.parts.0 == 1;
        let segments = self.segments();
        let whole = |train: &&Train| (segments || train.packets == 1) && !is_plain(train);
        from + trains[from..most].iter().take_while(whole).count()
    }

    fn count_sent(&mut self, train: &Train, parts: &[libc::iovec]) {
        let bytes: usize = parts[train.parts.0..train.parts.1].iter().map(|p| p.iov_len).sum();
        self.counters.packets_sent += train.packets as u64;
        self.counters.bytes_sent += bytes as u64;
    }

    fn on_send_error(&mut self, error: &io::Error, packets: usize) -> AfterError {
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::ENOBUFS) => AfterError::Full,
            Some(libc::EINTR) => AfterError::Again,
            // A late error of an earlier packet: this one has not been sent.
            Some(libc::ECONNREFUSED) => AfterError::Again,
            Some(libc::EIO | libc::EINVAL | libc::EMSGSIZE) if packets > 1 => {
                self.segmentation.on_refusal();
                AfterError::Again
            }
            _ => {
                self.counters.send_errors += 1;
                AfterError::Skip
            }
        }
    }

    fn send_batch(&mut self, trains: &[Train], parts: &mut [libc::iovec]) -> io::Result<usize> {
        self.headers.clear();
        self.addresses.clear();
        self.addresses.extend(trains.iter().filter_map(|train| train.to).map(SockAddr::from));
        for (index, train) in trains.iter().enumerate() {
            // SAFETY: all-zero is a valid `mmsghdr`.
            let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
            if train.to.is_some() {
                let address = &self.addresses[index];
                header.msg_hdr.msg_name = address.as_ptr().cast_mut().cast();
                header.msg_hdr.msg_namelen = address.len();
            }
            header.msg_hdr.msg_iov = parts[train.parts.0..train.parts.1].as_mut_ptr();
            header.msg_hdr.msg_iovlen = train.parts.1 - train.parts.0;
            if train.packets > 1 {
                segment_control(&mut header.msg_hdr, &mut self.controls[index], train);
            }
            self.headers.push(header);
        }
        self.counters.send_calls += 1;
        let fd = self.fd();
        // SAFETY: every header points to addresses, control buffers and io vectors that live
        // until the call returns; the io vectors point to memory that the caller keeps alive.
        let sent = unsafe {
            match &mut self.headers[..] {
                [single] => {
                    let sent = libc::sendmsg(fd, &single.msg_hdr, libc::MSG_DONTWAIT);
                    if sent < 0 { -1 } else { 1 }
                }
                all => {
                    let count = all.len() as u32;
                    libc::sendmmsg(fd, all.as_mut_ptr(), count, libc::MSG_DONTWAIT)
                }
            }
        };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent as usize) }
    }

    /// Sends the train packet by packet; false if the buffer is full before the first is sent. If
    /// it fills up later, the packets that find no space count as lost.
    fn send_packetwise(&mut self, train: &Train, parts: &[libc::iovec]) -> bool {
        let mut left = &parts[train.parts.0..train.parts.1];
        let (mut offset, mut is_first) = (0, true);
        let mut packet = Vec::new();
        loop {
            take_packet(&mut packet, &mut left, &mut offset, train.packet_bytes);
            if packet.is_empty() {
                return true;
            }
            let single = Train { parts: (0, packet.len()), packets: 1, ..*train };
            let sent = loop {
                match self.send_batch(&[single], &mut packet) {
                    Ok(_) => break true,
                    Err(error) => match self.on_send_error(&error, 1) {
                        AfterError::Full if is_first => return false,
                        AfterError::Again => {}
                        AfterError::Full | AfterError::Skip => break false,
                    },
                }
            };
            if sent {
                self.count_sent(&single, &packet);
            }
            is_first = false;
        }
    }
}

enum AfterError {
    Full,
    Again,
    Skip,
}

/// Cuts the next packet of `packet_bytes` off the remaining parts of a train, of whose first part
/// `offset` bytes have been sent: a received train is in one part. Empty if nothing is left.
fn take_packet(
    packet: &mut Vec<libc::iovec>,
    left: &mut &[libc::iovec],
    offset: &mut usize,
    packet_bytes: usize,
) {
    packet.clear();
    let mut room = packet_bytes;
    while let Some((part, rest)) = left.split_first().filter(|_| room > 0) {
        let bytes = (part.iov_len - *offset).min(room);
        let iov_base = part.iov_base.wrapping_byte_add(*offset);
        packet.extend((bytes > 0).then_some(libc::iovec { iov_base, iov_len: bytes }));
        (room, *offset) = (room - bytes, *offset + bytes);
        if *offset == part.iov_len {
            (*left, *offset) = (rest, 0);
        }
    }
}

/// Asks the kernel to cut the train into packets.
fn segment_control(header: &mut libc::msghdr, control: &mut Control, train: &Train) {
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = CONTROL_BYTES;
    // SAFETY: the control buffer is longer than one header with two bytes of data, and is
    // written through the accessors that libc gives for it.
    unsafe {
        let entry = libc::CMSG_FIRSTHDR(header);
        (*entry).cmsg_level = libc::SOL_UDP;
        (*entry).cmsg_type = libc::UDP_SEGMENT;
        (*entry).cmsg_len = libc::CMSG_LEN(2) as usize;
        std::ptr::write_unaligned(libc::CMSG_DATA(entry).cast(), train.packet_bytes as u16);
        header.msg_controllen = libc::CMSG_SPACE(2) as usize;
    }
}
