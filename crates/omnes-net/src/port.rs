//! A free port for the rendezvous at rank 0.

use crate::rendezvous::random;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};

/// Above the registered services that most sites use, and below 32768, where Linux starts to assign
/// ports automatically: a port from there may be taken by the time rank 0 listens at it.
const PORTS: std::ops::Range<u16> = 12_000..32_000;
const ATTEMPTS_MAX: usize = 64;

/// Returns a TCP port of `address`, which must be this machine's, that is free at present, as is
/// the next one. It is chosen at random, so that jobs that start together hardly ever get the same
/// port.
///
/// # Errors
/// The kernel's error for the last port tried.
pub fn free_port(address: IpAddr) -> std::io::Result<u16> {
    let mut last = std::io::ErrorKind::AddrInUse.into();
    for _ in 0..ATTEMPTS_MAX {
        let drawn = random::<2>().map_err(std::io::Error::other)?;
        let port = PORTS.start + u16::from_be_bytes(drawn) % (PORTS.end - PORTS.start);
        match check_free(address, port) {
            Ok(()) => return Ok(port),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The next port may be used by a program that listens at all addresses, such as `PyTorch`'s store.
fn check_free(address: IpAddr, port: u16) -> std::io::Result<()> {
    TcpListener::bind((address, port))?;
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    TcpListener::bind((any, port + 1)).map(drop)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn free_port_can_be_bound_and_is_outside_the_ephemeral_range() {
        let address = "127.0.0.1".parse().unwrap();
        let port = free_port(address).unwrap();
        assert!(PORTS.contains(&port));
        TcpListener::bind((address, port)).unwrap();
    }

    #[test]
    fn port_is_skipped_when_the_next_one_is_in_use() {
        let address = "127.0.0.1".parse().unwrap();
        let port = free_port(address).unwrap();
        let taken = TcpListener::bind((address, port + 1)).unwrap();
        assert!(check_free(address, port).is_err());
        drop(taken);
        check_free(address, port).unwrap();
    }
}
