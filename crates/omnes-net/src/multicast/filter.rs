//! The kernel filter of the group's socket: it drops packets of other jobs, of strangers, and of
//! this rank itself if its host receives them, before they fill the socket and wake a thread.
//!
//! Any host on the network may send to a group, so rejecting packets must be cheap: a packet
//! dropped here costs neither a system call nor space in the socket. The filter is not the
//! protection against strangers: that is the tag, which is checked in every packet that passes.
//! Dropped packets are counted by the kernel, see [`crate::socket::UdpSocket::dropped`].
//!
//! The program is classic BPF, which needs no privilege. Without it all packets pass.

use omnes_wire::{JOB_OFFSET, JobId, MAGIC, MAGIC_OFFSET, Rank, SOURCE_OFFSET};
use socket2::{SockFilter, Socket};
use std::io;

/// A UDP socket's filter sees packets from the UDP header on.
const UDP_HEADER_BYTES: usize = 8;
const LOAD_HALF: u16 = (libc::BPF_LD | libc::BPF_H | libc::BPF_ABS) as u16;
const LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// Bytes of a packet that the filter passes: all, or none.
const ALL: u32 = u32::MAX;
const NONE: u32 = 0;

/// Passes only packets that claim to be from ranks other than `me`, for `job`. A packet that is too
/// short for one of the loads is dropped.
pub(super) fn attach(socket: &Socket, job: JobId, me: Rank) -> io::Result<()> {
    let load =
        |code: u16, offset: usize| SockFilter::new(code, 0, 0, (UDP_HEADER_BYTES + offset) as u32);
    socket.attach_filter(&[
        load(LOAD_HALF, MAGIC_OFFSET),
        SockFilter::new(JUMP_IF_EQUAL, 0, 4, u32::from(MAGIC)),
        load(LOAD_WORD, JOB_OFFSET),
        SockFilter::new(JUMP_IF_EQUAL, 0, 2, job.0),
        load(LOAD_HALF, SOURCE_OFFSET),
        SockFilter::new(JUMP_IF_EQUAL, 0, 1, me.0),
        SockFilter::new(RETURN, 0, 0, NONE),
        SockFilter::new(RETURN, 0, 0, ALL),
    ])
}
