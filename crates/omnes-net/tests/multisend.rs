//! Multi-send in user space: a rank forwards the packets that its parent in the tree has sent to
//! all.
#![allow(clippy::unwrap_used)]

mod hosts;
mod members;
mod ranks;

use members::{LOOPBACK, loopback, with_ranks};
use omnes_net::{CastGroupConfig, GroupId, Hold, JobConfig, MultiSendPlan, Policy};
use omnes_topo::{Tree, TreeTable};
use omnes_wire::{CommunicatorId, Flags, Header, JobId, Kind, Rank};
use ranks::pattern;
use std::net::UdpSocket;
use std::sync::Mutex;

const COMMUNICATOR: CommunicatorId = CommunicatorId(0);
const MESSAGES: u64 = 20;

/// A packet that claims to be from rank 0, but is not.
fn forged(job: u32) -> Vec<u8> {
    let header = Header {
        job: JobId(job),
        communicator: COMMUNICATOR,
        flags: Flags::GROUP.with(Flags::FIRST),
        ..Header::blank(Kind::Cast, Rank(0))
    };
    let mut packet = header.emit().to_vec();
    packet.resize(100, 0x5a);
    packet
}

#[test]
fn packets_of_strangers_are_not_forwarded() {
    let without_multicast = |config: &mut JobConfig| config.multicast.wanted = false;
    let ports = Mutex::new(vec![(0, 0); 3]);
    let counters = with_ranks(&loopback(3), without_multicast, |member| {
        let (engine, me) = (&member.engine, member.engine.rank());
        ports.lock().unwrap()[me as usize] = engine.nic_ports();
        member.meet.wait();
        let ports = ports.lock().unwrap().clone();
        engine.set_nic_ports(&ports);
        engine.use_multisend();
        let nodes: Vec<Vec<Rank>> = (0..3).map(|rank| vec![Rank(rank)]).collect();
        // From rank 0 through rank 1 to rank 2.
        assert!(engine.open_multisend(MultiSendPlan {
            communicator: COMMUNICATOR,
            nodes: nodes.clone(),
            tree: TreeTable::new(Tree::Chain, 3).unwrap(),
            own: me,
            slot: None,
            slot_forwards: false,
        }));
        let id = GroupId { communicator: COMMUNICATOR, number: 0 };
        engine.open_group(CastGroupConfig { id, nodes: nodes.into(), policy: Policy::COMBINED });
        member.meet.wait();
        if me == 0 {
            let stranger = UdpSocket::bind((LOOPBACK, 0)).unwrap();
            for _ in 0..MESSAGES {
                stranger.send_to(&forged(engine.job()), (LOOPBACK, ports[1].1)).unwrap();
            }
        }
        let mut buffer = [0; 64];
        for number in 0..MESSAGES {
            let data = pattern(64, number as u32);
            if me == 0 {
                member.broadcast(&data, Hold::Basic);
            } else {
                assert_eq!(member.receive(0, &mut buffer).unwrap().bytes, 64);
                assert_eq!(buffer, *data);
            }
        }
        member.meet.wait();
        engine.counters()
    });
    let [_, between, last] = &counters[..] else { panic!("there are three ranks") };
    assert!(between.multicast.packets_sent >= MESSAGES, "{:?}", between.multicast);
    assert_eq!((between.gate.bad_tag, last.gate.bad_tag), (MESSAGES, 0));
}
