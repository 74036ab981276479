//! A network whose multicast stops in the middle of a job and resumes.

use super::*;

#[test]
fn unicast_repairs_replace_multicast_while_multicast_is_dead() {
    for policy in POLICIES {
        let mut net = Net::new(8, policy);
        let messages: Vec<Vec<u8>> = (0..8).map(|at| content(at, at * 700)).collect();
        let repairs = |net: &Net| net.nodes[0].machine.counters().repairs_by_multicast;
        net.broadcast(0, &messages[0]);
        net.run(2000);
        net.lose = Box::new(|header, _| header.flags.has(Flags::GROUP));
        messages[1..6].iter().for_each(|message| net.broadcast(0, message));
        net.run(60_000);
        assert!(repairs(&net) < 64, "{policy}: {} repairs in vain", repairs(&net));
        // Then some packets arrive, though not all.
        let mut packets = 0;
        net.lose = Box::new(move |_, _| {
            packets += 1;
            packets % 20 == 0
        });
        net.broadcast(0, &messages[6]);
        net.run(20_000);
        // Packets that all ranks have lost are sent to all again.
        let (before, mut left) = (repairs(&net), 7 * 3);
        net.lose = Box::new(move |header, _| {
            let is_lost = header.flags.has(Flags::GROUP) && left > 0;
            left -= u32::from(is_lost);
            is_lost
        });
        net.broadcast(0, &messages[7]);
        net.run(60_000);
        net.assert_received(&messages, 0);
        if !policy.starts_with("co-root") {
            assert!(repairs(&net) > before, "{policy}");
        }
    }
}

/// Packets repaired by unicast and copied so far, summed over all ranks.
fn sent_alone(net: &Net) -> (u64, u64) {
    let counters = net.nodes.iter().map(|node| *node.machine.counters());
    counters.fold((0, 0), |(repairs, copies), counters| {
        (repairs + counters.repairs_by_unicast, copies + counters.unicast_copies)
    })
}

#[test]
fn rank_unreachable_by_multicast_gets_unicast_copies_until_recovery() {
    for policy in POLICIES {
        let mut net = Net::new(8, policy);
        let mut messages = Vec::new();
        let mut broadcast = |net: &mut Net, count: usize| {
            let before = sent_alone(net);
            for _ in 0..count {
                messages.push(content(messages.len(), 8));
                net.broadcast(0, &messages[messages.len() - 1]);
                net.run(400);
            }
            net.assert_received(&messages, 0);
            let (repairs, copies) = sent_alone(net);
            (repairs - before.0, copies - before.1)
        };
        let usual = broadcast(&mut net, 10);
        net.lose = Box::new(|header, rank| rank == 5 && header.flags.has(Flags::GROUP));
        let (repairs, _) = broadcast(&mut net, 10);
        assert!(repairs < 20, "{policy}: {repairs}");
        assert_eq!(broadcast(&mut net, 10), (0, usual.1 + 10), "{policy}");
        net.lose = Box::new(|_, _| false);
        net.run(30_000);
        broadcast(&mut net, 10);
        assert_eq!(broadcast(&mut net, 10), usual, "{policy}");
    }
}
