//! Ranks that long packets do not reach, distinguished from failed ranks.

use super::*;

const TIMEOUT: Duration = Duration::from_millis(400);

/// Three ranks, of which rank 2 gets no data packet except the last of a message of several
/// packets.
fn net(policy: &str) -> Net {
    net_of(policy, 8000)
}

/// The same with packets of `payload_bytes` bytes.
fn net_of(policy: &str, payload_bytes: u16) -> Net {
    let config = BroadcastConfig { payload_bytes, peer_timeout: TIMEOUT, ..config() };
    let mut net = Net::with(3, policy, config);
    net.lose = Box::new(|header, to| {
        let is_data = matches!(header.kind, Kind::Cast | Kind::CastCoded);
        let is_short = header.flags.has(Flags::LAST) && !header.flags.has(Flags::FIRST);
        is_data && !is_short && to == 2
    });
    net
}

/// Lets time pass until a rank is suspected, but no longer than two timeouts.
fn suspicion(net: &mut Net) -> Option<Suspicion> {
    let end = net.now + 2 * TIMEOUT;
    while net.now < end {
        net.run(1);
        let found = net.nodes[0].machine.poll_suspicion();
        if found.is_some() {
            return found;
        }
    }
    None
}

const MTU_BLACK_HOLE: Option<Suspicion> = Some(Suspicion::MtuBlackHole(Rank(2)));

#[test]
fn long_packets_that_never_arrive_are_noticed_though_short_ones_do() {
    for policy in POLICIES {
        let mut net = net(policy);
        net.broadcast(0, &content(1, 8100));
        let start = net.now;
        assert_eq!(suspicion(&mut net), MTU_BLACK_HOLE, "{policy}");
        let time = net.now.since(start);
        assert!((TIMEOUT..TIMEOUT * 3 / 2).contains(&time), "{policy}: {time:?}");
    }
}

#[test]
fn a_silent_rank_that_lives_is_one_that_long_packets_do_not_get_to() {
    // Without gap reports it does not ask for overdue packets.
    for lives in [true, false] {
        let mut net = net("window");
        net.broadcast(0, &content(1, 8000 - 16));
        let start = net.now;
        let quiet = Some(Suspicion::Quiet(Rank(2)));
        assert_eq!(suspicion(&mut net), quiet);
        assert!((TIMEOUT / 2..TIMEOUT).contains(&net.now.since(start)));
        if lives {
            net.nodes[0].machine.on_sign_of_life(Rank(2));
        }
        let found = std::iter::from_fn(|| suspicion(&mut net)).find(|it| Some(*it) != quiet);
        let silent = Some(Suspicion::Silent(Rank(2)));
        assert_eq!(found, if lives { MTU_BLACK_HOLE } else { silent });
    }
}

#[test]
fn lost_short_packets_raise_no_black_hole_suspicion() {
    for policy in POLICIES {
        let mut net = net_of(policy, 1000);
        net.broadcast(0, &content(1, 1100));
        assert_ne!(suspicion(&mut net), MTU_BLACK_HOLE, "{policy}");
    }
}
