//! Ranks that have failed or left: no rank waits for them.

use super::*;

#[test]
fn rank_that_left_before_the_first_message_is_not_waited_for() {
    for policy in POLICIES {
        for left in [1, 2, 3] {
            // Packets are forwarded only to ranks that are present.
            let mut net = Net::new(4, policy);
            let is_repairer = policy.starts_with("co-root") && left == 2;
            if is_repairer {
                continue;
            }
            net.lose = Box::new(move |header, to| to == left || header.source.0 == left);
            for node in &mut net.nodes {
                node.machine.depart_peer(net.now, Rank(left));
            }
            (1..4).filter(|rank| *rank != left).for_each(|rank| net.receive(rank, 0, 700));
            net.send(0, content(1, 700), Reply::Soon);
            net.run(5000);
            assert_eq!(net.nodes[0].freed, 1, "{policy} without {left}");
            assert!(net.nodes[0].machine.is_idle(), "{policy} without {left}");
            for rank in (1..4).filter(|rank| *rank != left) {
                let received = &net.nodes[rank as usize].received;
                assert_eq!(received, &[content(1, 700)], "{policy} without {left}: {rank}");
            }
        }
    }
}

#[test]
fn credits_of_a_departed_rank_no_longer_limit_the_root() {
    let few = BroadcastConfig { initial_credit_bytes: 16 * 2304, ..config() };
    let mut net = Net::with(3, "combined", few);
    net.broadcast(0, &content(0, 8));
    net.run(2000);
    net.lose = Box::new(|header, to| to == 2 || header.source == Rank(2));
    for rank in [0, 1] {
        net.nodes[rank].machine.depart_peer(net.now, Rank(2));
    }
    let message = content(1, 2_000_000);
    net.receive(1, 0, message.len());
    net.send(0, message.clone(), Reply::Soon);
    net.run(10_000);
    assert_eq!((net.nodes[0].freed, net.nodes[1].received.last()), (2, Some(&message)));
}

#[test]
fn broken_group_names_the_member_that_failed_first() {
    let mut net = Net::new(4, "combined");
    let machine = &mut net.nodes[0].machine;
    [2, 1].map(Rank).into_iter().for_each(|rank| machine.fail_peer(rank));
    let error = BroadcastError::PeerFailed { rank: Rank(2) };
    assert_eq!(machine.receive(net.now, GROUP, Rank(3), 1), Err(error));
}
