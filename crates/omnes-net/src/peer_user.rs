//! The user of the process at the other end of a connection, if it can be known: on this machine.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};

/// Tables of the TCP sockets in the calling thread's network namespace.
const TABLES: [&str; 2] = ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"];
const ROOT: u32 = 0;

/// Instead of a user: the peer has closed its socket, and the kernel no longer reports its user.
const NOBODY: u32 = u32::MAX;

/// Number of times that the tables are read for a socket of this machine: a busy one may be
/// skipped.
const READINGS: u32 = 3;

/// The user at the other end of `stream`, if it is neither this process's user nor root. Also
/// `None` for a process on another machine, or in another network namespace, and if the kernel does
/// not report the user.
pub(crate) fn stranger_at(stream: &TcpStream) -> Option<u32> {
    let (own, theirs) = (stream.local_addr().ok()?, stream.peer_addr().ok()?);
    if !is_own(theirs) {
        return None;
    }
    let user = user_of(theirs, own)?;
    (user != own_user() && user != ROOT).then_some(user)
}

/// The user that this process runs as, in its own user namespace.
pub(crate) fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// False if no socket of this host can have that address; the tables are long on a busy host.
fn is_own(mut address: SocketAddr) -> bool {
    address.set_port(0);
    let bound = UdpSocket::bind(address);
    !bound.is_err_and(|error| error.kind() == std::io::ErrorKind::AddrNotAvailable)
}

/// The user whose socket at `local` is connected to `remote`, or [`NOBODY`]; `None` if it is not a
/// socket of this machine, as far as the kernel reports.
fn user_of(local: SocketAddr, remote: SocketAddr) -> Option<u32> {
    let (local, remote) = (canonical(local), canonical(remote));
    let is_here = local.ip() == remote.ip() || local.ip().is_loopback();
    for _ in 0..READINGS {
        let tables: Vec<File> = TABLES.iter().filter_map(|path| File::open(path).ok()).collect();
        let tells = !tables.is_empty();
        let mut rows = tables
            .into_iter()
            .flat_map(|table| BufReader::new(table).lines().map_while(Result::ok));
        let found = rows.find_map(|row| user_in(&row, local, remote));
        if found.is_some() || !is_here || !tells {
            return found;
        }
    }
    Some(NOBODY)
}

/// The user in a table's row, if the row is that of the socket at `local` connected to `remote`.
fn user_in(row: &str, local: SocketAddr, remote: SocketAddr) -> Option<u32> {
    // Number, local, remote, state, queues, timer, retransmits, user, timeout, inode
    // (proc_net_tcp(5)).
    let mut fields = row.split_ascii_whitespace().skip(1);
    let is_it = address_in(fields.next()?)? == local && address_in(fields.next()?)? == remote;
    let user = is_it.then(|| fields.nth(4)?.parse().ok()).flatten()?;
    // A socket that no process holds any more is shown as root's.
    let is_orphan = fields.nth(1)? == "0";
    Some(if is_orphan { NOBODY } else { user })
}

/// Maps an IPv4 address in IPv6 form to IPv4: which form each end shows depends on its socket.
/// Scopes are not in the tables.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Parses an address as the kernel writes it, words in native byte order, then the port; canonical.
fn address_in(field: &str) -> Option<SocketAddr> {
    let (words, port) = field.split_once(':')?;
    let mut octets = Vec::with_capacity(16);
    for digits in words.as_bytes().chunks(8) {
        let word = u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        octets.extend(word.to_ne_bytes());
    }
    let ip = match <[u8; 4]>::try_from(octets.as_slice()) {
        Ok(octets) => IpAddr::from(octets),
        Err(_) => IpAddr::from(<[u8; 16]>::try_from(octets).ok()?),
    };
    Some(canonical(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn both_ends_of_a_local_connection_belong_to_this_user() {
        // SAFETY: plain system call.
        let me = unsafe { libc::geteuid() };
        // The last one has an IPv6 address at one end, and an IPv4 address at the other.
        for (host, called) in [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("::", "127.0.0.1")] {
            let Ok(listener) = TcpListener::bind((host, 0)) else { continue };
            let port = listener.local_addr().unwrap().port();
            let one = TcpStream::connect((called, port)).unwrap();
            let other = listener.accept().unwrap().0;
            for stream in [&one, &other] {
                let (own, theirs) = (stream.local_addr().unwrap(), stream.peer_addr().unwrap());
                assert_eq!(user_of(theirs, own), Some(me));
                assert_eq!(stranger_at(stream), None);
            }
        }
    }

    #[test]
    fn kernel_address_format_is_parsed() {
        if cfg!(target_endian = "big") {
            return;
        }
        let read = |field: &str| address_in(field).map(|address| address.to_string());
        assert_eq!(read("0100007F:1F90").as_deref(), Some("127.0.0.1:8080"));
        let mapped = "0000000000000000FFFF00000100007F:1F90";
        assert_eq!(read(mapped).as_deref(), Some("127.0.0.1:8080"));
        assert_eq!(read("00000000000000000000000001000000:0016").as_deref(), Some("[::1]:22"));
        for wrong in ["", ":", "0100007F", "0100007F:10000", "0100007G:1", &"0".repeat(99)] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn local_peer_missing_from_the_tables_is_a_stranger() {
        let nobody: SocketAddr = "127.0.0.1:1".parse().unwrap();
        assert_eq!(user_of(nobody, "127.0.0.1:2".parse().unwrap()), Some(NOBODY));
        let far: SocketAddr = "192.0.2.1:1".parse().unwrap();
        assert_eq!(user_of(far, "192.0.2.2:1".parse().unwrap()), None);
    }

    #[test]
    fn remote_addresses_are_not_considered_local() {
        let is_own = |address: &str| is_own(address.parse().unwrap());
        assert!(is_own("127.0.0.1:80") && is_own("127.1.2.3:1"));
        let binds_anywhere = std::fs::read_to_string("/proc/sys/net/ipv4/ip_nonlocal_bind");
        if binds_anywhere.is_ok_and(|it| it.trim() == "0") {
            assert!(!is_own("192.0.2.1:80"));
        }
    }

    #[test]
    fn peer_that_has_disconnected_is_a_stranger() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        drop(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        let stream = listener.accept().unwrap().0;
        assert_eq!(stranger_at(&stream), Some(NOBODY));
    }
}
