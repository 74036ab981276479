//! Whether ranks may still be waiting for each other at the start of a job.
//!
//! A rank that ends before it has joined leaves the others waiting, without a message, for
//! OMNES_JOIN_TIMEOUT. The launcher sees its end, and sees rank 0 listen: at the rendezvous
//! address, until all ranks have connected. If rank 0 itself has ended, or runs over ssh, only a
//! rank that has published counters shows that the job has joined.

use super::job::Job;
use super::process::Process;
use super::published::{self, Published};
use std::fs;

/// State of a listening socket in `/proc/net/tcp`.
const LISTENS: &str = "0A";

/// False if the ranks are known to have joined, or never to have tried.
pub fn may_last(ranks: &[Process], job: &Job) -> bool {
    let is_seen = |rank: &&Process| !rank.is_ended() && !rank.is_remote();
    if let Some(first) = ranks.first().filter(is_seen) {
        return port_of(&job.rendezvous).is_some_and(|port| listens(first.group(), port));
    }
    published::place(job).is_none_or(|place| Published::by(ranks, &place).is_empty())
}

fn port_of(rendezvous: &str) -> Option<u16> {
    rendezvous.rsplit_once(':')?.1.parse().ok()
}

/// True if a process listens on `port` in the network namespace of process `pid`.
fn listens(pid: libc::pid_t, port: u16) -> bool {
    ["tcp", "tcp6"].into_iter().any(|table| {
        let table = fs::read_to_string(format!("/proc/{pid}/net/{table}"));
        table.is_ok_and(|table| table.lines().any(|line| is_listening(line, port)))
    })
}

/// Matches one line of `/proc/net/tcp`: number, own address and port, the peer's, state.
fn is_listening(line: &str, port: u16) -> bool {
    let mut words = line.split_whitespace().skip(1);
    let own = words.next().and_then(|own| own.rsplit_once(':'));
    let own = own.and_then(|(_, port)| u16::from_str_radix(port, 16).ok());
    own == Some(port) && words.nth(1) == Some(LISTENS)
}

/// `rank 1 has`, `ranks 1, 2 and 5 have`; of many ranks only the first, and the number of others.
pub fn named(ranks: &[usize]) -> String {
    const NAMED_MAX: usize = 8;
    let names: Vec<String> = ranks.iter().take(NAMED_MAX).map(usize::to_string).collect();
    match (names.split_last(), ranks.len().saturating_sub(NAMED_MAX)) {
        (None, _) => "no rank has".to_owned(),
        (Some((only, [])), _) => format!("rank {only} has"),
        (Some((last, others)), 0) => format!("ranks {} and {last} have", others.join(", ")),
        (Some(_), more) => format!("ranks {} and {more} more have", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listening_socket_is_distinguished_from_others() {
        let head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt";
        let line = |port, state| format!("   0: 0100007F:{port} 00000000:0000 {state} 00000000:0");
        assert!(is_listening(&line("1F90", "0A"), 8080));
        assert!(!is_listening(&line("1F90", "01"), 8080), "connected");
        assert!(!is_listening(&line("1F91", "0A"), 8080) && !is_listening(head, 8080));
        assert_eq!(port_of("[::1]:8080"), Some(8080));
    }

    #[test]
    fn rank_lists_are_formatted_as_prose() {
        assert_eq!(named(&[1]), "rank 1 has");
        assert_eq!(named(&[1, 2]), "ranks 1 and 2 have");
        assert_eq!(named(&[1, 2, 5]), "ranks 1, 2 and 5 have");
        let many: Vec<usize> = (0..20).collect();
        assert_eq!(named(&many), "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 12 more have");
    }
}
