//! Whose process is at the other end of a connection, where that can be known: on this machine.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddr, TcpStream};

/// Tables of the TCP sockets in the calling thread's network namespace.
const TABLES: [&str; 2] = ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"];
const ROOT: u32 = 0;

/// In place of a user: whoever it was has hung up, and the kernel tells no more.
const NOBODY: u32 = u32::MAX;

/// The user at the other end of `stream`, if that is neither this process's user nor root. `None`
/// also for whoever is on another machine, or in another network namespace, and where the kernel
/// does not tell.
pub(crate) fn stranger_at(stream: &TcpStream) -> Option<u32> {
    let (own, theirs) = (stream.local_addr().ok()?, stream.peer_addr().ok()?);
    let user = user_of(theirs, own)?;
    // SAFETY: plain system call.
    let me = unsafe { libc::geteuid() };
    (user != me && user != ROOT).then_some(user)
}

/// The user whose socket at `local` is connected to `remote`, or [`NOBODY`].
fn user_of(local: SocketAddr, remote: SocketAddr) -> Option<u32> {
    let (local, remote) = (as_in_table(local), as_in_table(remote));
    let rows = TABLES.iter().filter_map(|table| File::open(table).ok());
    let mut rows = rows.flat_map(|table| BufReader::new(table).lines().map_while(Result::ok));
    rows.find_map(|row| {
        // Number, local, remote, state, queues, timer, retransmits, user, timeout, inode
        // (proc_net_tcp(5)).
        let mut fields = row.split_ascii_whitespace().skip(1);
        let is_it = fields.next()? == local && fields.next()? == remote;
        let user = is_it.then(|| fields.nth(4)?.parse().ok()).flatten()?;
        // A socket that nobody has any more is shown as root's.
        let is_orphan = fields.nth(1)? == "0";
        Some(if is_orphan { NOBODY } else { user })
    })
}

/// As the kernel writes it: words in its own byte order, then the port.
fn as_in_table(address: SocketAddr) -> String {
    let octets = match address.ip() {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let words = octets.chunks_exact(4).map(|word| {
        let word = u32::from_ne_bytes([word[0], word[1], word[2], word[3]]);
        format!("{word:08X}")
    });
    format!("{}:{:04X}", words.collect::<String>(), address.port())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn both_ends_of_an_own_connection_are_this_user_s() {
        // SAFETY: plain system call.
        let me = unsafe { libc::geteuid() };
        for host in ["127.0.0.1", "::1"] {
            let Ok(listener) = TcpListener::bind((host, 0)) else { continue };
            let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let other = listener.accept().unwrap().0;
            for stream in [&one, &other] {
                let (own, theirs) = (stream.local_addr().unwrap(), stream.peer_addr().unwrap());
                assert_eq!(user_of(theirs, own), Some(me));
                assert_eq!(stranger_at(stream), None);
            }
        }
    }

    #[test]
    fn whoever_has_hung_up_is_no_more_root_than_before() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        drop(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        let stream = listener.accept().unwrap().0;
        assert_eq!(stranger_at(&stream), Some(NOBODY));
    }
}
