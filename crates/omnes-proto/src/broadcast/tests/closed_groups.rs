//! Closed groups, which some ranks close long before the others.

use super::*;
use crate::broadcast::slots::Slots;

/// Loses one packet in `one_in` at each receiver.
fn losing(one_in: u64, seed: u64) -> Loss {
    let mut state = seed;
    Box::new(move |_, _| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33).is_multiple_of(one_in)
    })
}

impl Net {
    /// Every rank that has completed its part in `messages` of `root` closes the group.
    fn close_where_over(&mut self, root: u32, messages: usize) {
        for (rank, node) in (0..).zip(&mut self.nodes) {
            if rank == root || node.received.len() == messages {
                node.machine.close(GROUP.communicator);
            }
        }
    }

    /// Root 0 leaves, and all others close the group, which is then over.
    fn close_without_root(&mut self) {
        self.lose = Box::new(|header, to| to == 0 || header.source == Rank(0));
        for node in &mut self.nodes[1..] {
            node.machine.depart_peer(self.now, Rank(0));
            node.machine.close(GROUP.communicator);
        }
        self.run(20_000);
        for (rank, node) in self.nodes.iter().enumerate().skip(1) {
            assert!(node.machine.is_over(GROUP.communicator), "rank {rank}");
        }
    }

    fn assert_dormant(&self, what: &str) {
        for (rank, Node { machine, .. }) in self.nodes.iter().enumerate() {
            let left = (machine.streams.len(), machine.groups.len());
            assert_eq!(left, (0, 0), "{what}: rank {rank}");
            assert!(machine.is_over(GROUP.communicator), "{what}: rank {rank}");
        }
    }
}

#[test]
fn closed_groups_persist_until_all_ranks_are_complete() {
    for policy in POLICIES {
        for (size, one_in) in [(2, 3), (4, 5), (8, 10), (8, 1 << 40)] {
            let mut net = Net::new(size, policy);
            net.lose = losing(one_in, u64::from(size));
            let messages: Vec<Vec<u8>> = (0..7).map(|at| content(at, at * 397)).collect();
            messages.iter().for_each(|message| net.broadcast(1, message));
            for _ in 0..60_000 {
                net.close_where_over(1, messages.len());
                net.run(1);
            }
            let what = format!("{policy}, {size} ranks, one in {one_in} lost");
            net.assert_received(&messages, 1);
            net.assert_dormant(&what);
        }
    }
}

#[test]
fn closed_group_answers_queries_with_its_progress() {
    let mut net = Net::new(3, "window");
    net.lose = Box::new(|header, _| header.kind == Kind::CastAck);
    let message = content(1, 700);
    net.broadcast(0, &message);
    net.run(20);
    net.nodes.iter_mut().for_each(|node| node.machine.close(GROUP.communicator));
    net.run(2000);
    // None of them has learned that the others are done, but the receivers are done themselves.
    assert_eq!(net.nodes[0].freed, 0);
    let left: Vec<usize> = net.nodes.iter().map(|node| node.machine.streams.len()).collect();
    assert_eq!(left, [1, 0, 0]);
    net.lose = Box::new(|_, _| false);
    net.run(20_000);
    net.assert_received(&[message], 0);
    net.assert_dormant("once answers come through");
}

#[test]
fn packets_do_not_reopen_a_closed_group() {
    let mut net = Net::new(2, "combined");
    let message = content(1, 10);
    net.broadcast(0, &message);
    net.run(2000);
    net.nodes[1].machine.close(GROUP.communicator);
    // The other rank does not know.
    net.send(0, message.clone(), Reply::Soon);
    net.run(2000);
    let Node { machine, received, .. } = &net.nodes[1];
    assert_eq!((received.len(), machine.streams.len(), machine.knocks.len()), (1, 0, 0));
    // Closing a group twice, or without opening it, leaves it closed.
    net.nodes[1].machine.close(GROUP.communicator);
    net.nodes[1].machine.close(CommunicatorId(9));
    assert!(net.nodes[1].machine.is_over(CommunicatorId(9)));
}

#[test]
fn rank_that_closed_without_using_a_stream_is_not_suspected() {
    let peer_timeout = Duration::from_millis(5);
    let mut net = Net::with(3, "window", BroadcastConfig { peer_timeout, ..config() });
    net.nodes[2].machine.close(GROUP.communicator);
    net.receive(1, 0, 10);
    net.send(0, content(1, 10), Reply::Soon);
    for _ in 0..5000 {
        net.run(1);
        assert_eq!(net.nodes[0].machine.poll_suspicion(), None);
    }
    assert_eq!((net.nodes[1].received.len(), net.nodes[0].freed), (1, 0));
}

#[test]
fn copies_from_a_departed_root_are_not_kept_for_closed_ranks() {
    // Rank 3 gets its messages from co-root 2 if the multicast packets are lost.
    let mut net = Net::new(4, "co-root=2");
    net.lose = Box::new(|header, to| header.kind == Kind::Cast && to == 3);
    net.receive(3, 0, 10);
    for at in 0..2 {
        net.send(0, content(at, 10), Reply::Soon);
        [1, 2].into_iter().for_each(|rank| net.receive(rank, 0, 10));
    }
    net.run(2000);
    assert_eq!((net.nodes[0].freed, net.nodes[3].received.len()), (2, 0));
    net.close_without_root();
}

#[test]
fn closed_rank_discards_remaining_packets_of_a_departed_root() {
    // Three messages of 79 packets each; rank 3, below co-root 2, has space for one of them.
    let mut net = Net::new(4, "co-root=2");
    net.nodes[3].machine.common.slots = Slots::new(100);
    for at in 0..3 {
        net.send(0, content(at, 20_000), Reply::Soon);
        [1, 2].into_iter().for_each(|rank| net.receive(rank, 0, 20_000));
    }
    net.run(5000);
    assert_eq!((net.nodes[0].freed, net.nodes[2].received.len()), (3, 3));
    assert!(net.nodes[3].machine.free_slots() < 10);
    net.close_without_root();
    let free = net.nodes.iter().map(|node| node.machine.free_slots());
    assert_eq!(free.collect::<Vec<_>>(), [2048, 2048, 2048, 100]);
}

#[test]
fn packets_of_an_abandoned_communicator_are_acknowledged_and_discarded() {
    for policy in POLICIES {
        let mut net = Net::new(4, policy);
        // The last rank has room for one of three messages, and receives none of them.
        net.nodes[3].machine.common.slots = Slots::new(100);
        net.lose = losing(20, 7);
        for at in 0..3 {
            net.send(0, content(at, 20_000), Reply::Soon);
            [1, 2].into_iter().for_each(|rank| net.receive(rank, 0, 20_000));
        }
        net.run(5000);
        // A receive of what rank 1 never sends, as it has given up what was to come before that.
        net.receive(3, 1, 10);
        net.nodes[3].machine.abandon(GROUP.communicator);
        net.run(60_000);
        let Node { machine, .. } = &net.nodes[3];
        assert!(machine.is_over(GROUP.communicator), "{policy}");
        assert_eq!((machine.free_slots(), machine.common.active), (100, 0), "{policy}");
        assert_eq!((net.nodes[0].freed, net.nodes[2].received.len()), (3, 3), "{policy}");
        // Its part in what comes later, of others, is over as well.
        net.send(2, content(4, 20_000), Reply::Soon);
        [0, 1].into_iter().for_each(|rank| net.receive(rank, 2, 20_000));
        net.run(60_000);
        assert_eq!((net.nodes[2].freed, net.nodes[0].received.len()), (1, 1), "{policy}");
    }
}

#[test]
fn gap_below_a_repairer_that_abandoned_ends_when_the_rank_abandons_too() {
    for policy in ["co-root=2", "tree-ack=2", "window"] {
        let mut net = Net::new(8, policy);
        let first = content(1, 700);
        net.broadcast(0, &first);
        net.run(5000);
        // Ranks that repair or acknowledge for others have nothing to do with what follows.
        for rank in [1, 2, 4] {
            net.nodes[rank].machine.abandon(GROUP.communicator);
            assert!(net.nodes[rank].machine.is_over(GROUP.communicator), "{policy}: {rank}");
        }
        net.lose =
            Box::new(|header, to| header.kind == Kind::Cast && to > 2 && header.argument == 5);
        for rank in [3, 5, 6, 7] {
            net.receive(rank, 0, 20_000);
        }
        net.send(0, content(2, 20_000), Reply::Soon);
        net.run(20_000);
        for rank in [3, 5, 6, 7] {
            net.nodes[rank].machine.abandon(GROUP.communicator);
        }
        net.run(60_000);
        for (rank, Node { machine, .. }) in net.nodes.iter().enumerate().skip(1) {
            assert!(machine.is_over(GROUP.communicator), "{policy}: rank {rank}");
            assert_eq!(
                (machine.common.active, machine.free_slots()),
                (0, 2048),
                "{policy}: {rank}"
            );
        }
        assert_eq!(net.nodes[0].freed, 2, "{policy}");
    }
}
