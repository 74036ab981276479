//! Receiving datagrams and trains, many per system call or one into several buffers.

use super::{CONTROL_BYTES, DATAGRAMS_PER_CALL, Received, UdpSocket};

/// Whether a datagram stays in the socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Take {
    /// The datagram stays.
    Look,
    /// The datagram is removed.
    Out,
}

impl UdpSocket {
    /// Receives waiting datagrams, one per buffer; returns their number, which may be 0.
    pub fn receive(&mut self, buffers: &mut [libc::iovec], out: &mut Vec<Received>) -> usize {
        out.clear();
        self.headers.clear();
        let count = buffers.len().min(DATAGRAMS_PER_CALL);
        for (index, buffer) in buffers[..count].iter_mut().enumerate() {
            // SAFETY: all-zero is a valid `mmsghdr`.
            let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
            header.msg_hdr.msg_iov = buffer;
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_control = self.controls[index].0.as_mut_ptr().cast();
            header.msg_hdr.msg_controllen = CONTROL_BYTES;
            self.headers.push(header);
        }
        self.counters.receive_calls += 1;
        // SAFETY: headers point to control buffers of this struct and to the caller's io vectors,
        // whose memory the caller keeps valid for writing.
        let received = unsafe {
            let flags = libc::MSG_DONTWAIT;
            libc::recvmmsg(
                self.fd(),
                self.headers.as_mut_ptr(),
                count as u32,
                flags,
                std::ptr::null_mut(),
            )
        };
        for header in self.headers.iter().take(received.max(0) as usize) {
            let bytes = header.msg_len as usize;
            let packet_bytes = gro_packet_bytes(&header.msg_hdr).unwrap_or(bytes);
            out.push(Received { bytes, packet_bytes: packet_bytes.max(1) });
        }
        for received in out.iter() {
            self.count_received(*received);
        }
        out.len()
    }

    /// Receives one datagram into several buffers, or only peeks at it. `None` if there is none.
    pub fn receive_scattered(
        &mut self,
        buffers: &mut [libc::iovec],
        take: Take,
    ) -> Option<Received> {
        // SAFETY: all-zero is a valid `msghdr`.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = buffers.as_mut_ptr();
        header.msg_iovlen = buffers.len();
        header.msg_control = self.controls[0].0.as_mut_ptr().cast();
        header.msg_controllen = CONTROL_BYTES;
        let flags = match take {
            Take::Look => libc::MSG_DONTWAIT | libc::MSG_TRUNC | libc::MSG_PEEK,
            Take::Out => libc::MSG_DONTWAIT | libc::MSG_TRUNC,
        };
        self.counters.receive_calls += 1;
        // SAFETY: as in `receive`.
        let bytes = unsafe { libc::recvmsg(self.fd(), &mut header, flags) };
        let bytes = usize::try_from(bytes).ok()?;
        let packet_bytes = gro_packet_bytes(&header).unwrap_or(bytes).max(1);
        let received = Received { bytes, packet_bytes };
        if take == Take::Out {
            self.count_received(received);
        }
        Some(received)
    }

    fn count_received(&mut self, received: Received) {
        self.counters.trains_received += 1;
        self.counters.packets_received += received.bytes.div_ceil(received.packet_bytes) as u64;
        self.counters.bytes_received += received.bytes as u64;
    }
}

/// Packet length of a train, if the kernel has coalesced one.
fn gro_packet_bytes(header: &libc::msghdr) -> Option<usize> {
    // SAFETY: the kernel has filled in the control buffer and its length.
    unsafe {
        let mut entry = libc::CMSG_FIRSTHDR(header);
        while !entry.is_null() {
            if (*entry).cmsg_level == libc::SOL_UDP && (*entry).cmsg_type == libc::UDP_GRO {
                let bytes: i32 = std::ptr::read_unaligned(libc::CMSG_DATA(entry).cast());
                return usize::try_from(bytes).ok();
            }
            entry = libc::CMSG_NXTHDR(header, entry);
        }
    }
    None
}
