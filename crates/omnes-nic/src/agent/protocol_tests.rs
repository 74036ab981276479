//! Any bytes may arrive over the agent's socket.

#![allow(clippy::unwrap_used)]

use super::super::limits::{MEMBER_BYTES_MAX, MEMBERS_MAX, PEER_BYTES_MAX};
use super::*;
use crate::MemberPlan;
use omnes_firmware::KERNEL_GROUP_MAX;
use proptest::prelude::*;
use std::net::Ipv6Addr;

fn plan(peers: usize, members: usize) -> SlotPlan {
    let address = SocketAddr::new(Ipv6Addr::from(u128::MAX).into(), u16::MAX);
    let member =
        MemberPlan { rank: u32::MAX, index: KERNEL_GROUP_MAX as u32 - 1, key: [u8::MAX; 16] };
    SlotPlan {
        job: u32::MAX,
        communicator: u32::MAX,
        channel: u8::MAX,
        rank: u32::MAX,
        own: KERNEL_GROUP_MAX as u32 - 1,
        socket: address,
        doorbell: Some(u64::MAX),
        peers: vec![(u32::MAX, address); peers],
        members: vec![member; members],
        group: Some(address),
        group_ttl: 1,
        barrier: Some("gather-broadcast".to_owned()),
        tree: None,
        forwards: false,
        by_mac: false,
    }
}

fn requests() -> Vec<Vec<u8>> {
    let interface = "eth0".to_owned();
    let all = [
        Request::Hello,
        Request::Lend { plan: Box::new(plan(2, 2)) },
        Request::Return { slot: 7 },
        Request::List,
        Request::Attach { interface: interface.clone() },
        Request::Detach { interface, by_force: true },
        Request::End,
    ];
    all.into_iter().map(emit).collect()
}

/// All lines that are returned.
fn lines(lines: &mut Lines) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| lines.next()).collect()
}

#[test]
fn requests_round_trip_through_the_parser() {
    let parsed: Vec<Request> =
        requests().iter().map(|line| parse(line.strip_suffix(b"\n").unwrap()).unwrap()).collect();
    assert!(matches!(parsed[0], Request::Hello));
    let Request::Lend { plan: parsed_plan } = &parsed[1] else { panic!("lend") };
    assert_eq!(parsed_plan.peers, plan(2, 2).peers);
    assert_eq!(parsed_plan.members[1].key, [u8::MAX; 16]);
    assert!(matches!(parsed[2], Request::Return { slot: 7 }));
    assert!(matches!(parsed[3], Request::List));
    assert!(matches!(&parsed[4], Request::Attach { interface } if interface == "eth0"));
    assert!(matches!(&parsed[5], Request::Detach { by_force: true, .. }));
    assert!(matches!(parsed[6], Request::End));
}

#[test]
fn version_mismatch_is_reported_before_other_errors() {
    let reason = parse(br#"{"version":99,"op":"borrow","new":{}}"#).err().unwrap();
    let own = PROTOCOL_VERSION;
    assert!(reason.contains("99") && reason.contains(&own.to_string()), "{reason}");
    assert!(parse(br#"{"op":"hello"}"#).is_err());
    let unknown = parse(format!(r#"{{"version":{own},"op":"borrow"}}"#).as_bytes());
    let reason = unknown.err().unwrap();
    assert!(reason.contains("borrow"), "{reason}");
}

#[test]
fn the_longest_plan_fits_into_a_request() {
    let entry = |peers, members| emit(Request::Lend { plan: Box::new(plan(peers, members)) }).len();
    assert!(entry(2, 1) - entry(1, 1) <= PEER_BYTES_MAX, "{}", entry(2, 1) - entry(1, 1));
    assert!(entry(1, 2) - entry(1, 1) <= MEMBER_BYTES_MAX, "{}", entry(1, 2) - entry(1, 1));
    let longest = emit(Request::Lend { plan: Box::new(plan(KERNEL_GROUP_MAX, MEMBERS_MAX)) });
    assert!(longest.len() <= LINE_BYTES_MAX);
    let mut assembled = Lines::default();
    assembled.push(&longest).unwrap();
    assert!(parse(&assembled.next().unwrap()).is_ok());
}

#[test]
fn unterminated_line_is_rejected_exactly_beyond_the_limit() {
    let mut endless = Lines::default();
    endless.push(&vec![b'x'; LINE_BYTES_MAX]).unwrap();
    assert!(endless.next().is_none());
    assert!(endless.push(b"x").is_err());

    let mut ended = Lines::default();
    ended.push(&vec![b'x'; LINE_BYTES_MAX]).unwrap();
    ended.push(b"\nnext").unwrap();
    assert_eq!(ended.next().map(|line| line.len()), Some(LINE_BYTES_MAX));
    assert!(ended.push(&vec![b'x'; LINE_BYTES_MAX - 4]).is_ok());
    assert!(ended.push(b"x").is_err());
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic_the_parser(bytes: Vec<u8>) {
        let _ = parse(&bytes);
    }

    #[test]
    fn corrupted_requests_never_panic_the_parser(
        which in 0usize..7,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        length: prop::sample::Index,
    ) {
        let mut line = requests().swap_remove(which);
        for (at, byte) in changes {
            let at = at.index(line.len());
            line[at] = byte;
        }
        line.truncate(length.index(line.len() + 1));
        // Every request that parses can also be checked.
        if let Ok(Request::Lend { plan }) = parse(&line) {
            let _ = plan.check();
        }
    }

    #[test]
    fn numbers_of_any_size_never_panic_the_parser(version: u64, slot: i128, job: i64) {
        let _ = parse(format!(r#"{{"version":{version},"op":"return","slot":{slot}}}"#).as_bytes());
        let lend = r#""op":"lend","plan""#;
        let lend = format!(r#"{{"version":{PROTOCOL_VERSION},{lend}:{{"job":{job}}}}}"#);
        prop_assert!(parse(lend.as_bytes()).is_err(), "a plan by half");
    }

    #[test]
    fn lines_are_reassembled_from_arbitrary_fragments(
        said in prop::collection::vec("[a-z\\n]{0,40}", 0..6),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let all = said.concat().into_bytes();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(all.len() + 1)).collect();
        cuts.extend([0, all.len()]);
        cuts.sort_unstable();
        let mut assembled = Lines::default();
        let mut came = Vec::new();
        for (number, pair) in cuts.windows(2).enumerate() {
            assembled.push(&all[pair[0]..pair[1]]).unwrap();
            // Occasionally nothing is read in between.
            if number % 3 != 0 {
                came.extend(lines(&mut assembled));
            }
        }
        came.extend(lines(&mut assembled));
        let mut expected: Vec<Vec<u8>> = all.split(|byte| *byte == b'\n').map(Vec::from).collect();
        let rest = expected.pop().unwrap_or_default();
        prop_assert_eq!(came, expected);
        prop_assert_eq!(assembled.is_empty(), rest.is_empty());
        prop_assert!(!assembled.has_line());
    }
}

#[test]
fn control_characters_in_foreign_text_are_replaced() {
    assert_eq!(printable("a\u{1b}[2Jb\n\u{9b}c"), "a\u{fffd}[2Jb\u{fffd}\u{fffd}c");
    assert_eq!(printable(&"ß".repeat(5000)).chars().count(), WORDS_MAX);
}
