#![allow(clippy::unwrap_used)]
use super::*;
use omnes_wire::{ChannelId, CommunicatorId, Flags, Header, Kind, PACKET_OVERHEAD_BYTES, Seq};
use std::net::UdpSocket as StdSocket;

const OWN: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

const WORLD: HeardFor = HeardFor::Broadcasts(CommunicatorId(0));

/// Rank `me` of a job of three on this host, with sockets of its own.
fn join(job: JobId, me: u32, config: &MulticastConfig) -> Result<Group, NoMulticast> {
    let peers = [SocketAddr::new(OWN, 1); 3];
    let offloads = Offloads { gso: true, gro: true };
    let (me, own, buffer_bytes) = (Rank(me), OWN, 1 << 20);
    Plan { config, job, me, own, peers: &peers, offloads, buffer_bytes }.join()
}

/// A job number that no other test of this machine uses.
fn new_job() -> JobId {
    JobId(u32::from_be_bytes(crate::rendezvous::random().unwrap()))
}

fn packet(job: JobId, source: u32) -> Vec<u8> {
    let header = Header {
        kind: Kind::Hello,
        job,
        communicator: CommunicatorId(0),
        channel: ChannelId(0),
        flags: Flags::GROUP,
        source: Rank(source),
        seq: Seq(0),
        expects: Seq(0),
        epoch: 0,
        credits: 0,
        argument: 0,
    };
    let mut bytes = header.emit().to_vec();
    bytes.resize(PACKET_OVERHEAD_BYTES, 0);
    bytes
}

fn send(group: &Group, bytes: &[u8]) {
    group.sender.options().send(bytes).unwrap();
}

/// The next packet that the group receives, within a time that loopback never takes.
fn hear(group: &Group) -> Option<Vec<u8>> {
    let socket = group.receiver.options();
    socket.set_nonblocking(false).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut bytes = [std::mem::MaybeUninit::new(0); 2048];
    let length = socket.recv(&mut bytes).ok()?;
    // SAFETY: initialized bytes, some of which the kernel has replaced.
    Some(bytes[..length].iter().map(|byte| unsafe { byte.assume_init() }).collect())
}

/// The group of rank `me`, which hears it as leader of a node.
fn join_as_leader(job: JobId, me: u32) -> Group {
    let mut group = join(job, me, &MulticastConfig::default()).unwrap();
    group.membership.hear_for(WORLD, &group.receiver);
    group
}

#[test]
fn packets_reach_all_leaders_of_a_host_except_the_sender() {
    let job = new_job();
    let groups: Vec<Group> = (0..3).map(|rank| join_as_leader(job, rank)).collect();
    let sent = packet(job, 1);
    send(&groups[1], &sent);
    assert_eq!(hear(&groups[0]).unwrap(), sent);
    assert_eq!(hear(&groups[2]).unwrap(), sent);
    assert_eq!(hear(&groups[1]), None);
    assert_eq!([0, 1, 2].map(|rank: usize| groups[rank].receiver.dropped()), [0, 1, 0]);
}

#[test]
fn second_rank_of_a_host_hears_the_group_while_leading_a_communicator() {
    let (job, config) = (new_job(), MulticastConfig::default());
    let [member, mut rank] = [0, 1].map(|rank| join(job, rank, &config).unwrap());
    let sender = join(job, 2, &config).unwrap();
    let hears = |rank: &Group| {
        let sent = packet(job, 2);
        send(&sender, &sent);
        assert_eq!(hear(&member).unwrap(), sent);
        hear(rank).is_some()
    };
    let other = HeardFor::Barriers(CommunicatorId(0));
    assert!(!hears(&rank), "it leads nowhere");
    for communicator in [WORLD, other, other] {
        rank.membership.hear_for(communicator, &rank.receiver);
        assert!(hears(&rank));
    }
    rank.membership.forget(WORLD, &rank.receiver);
    assert!(hears(&rank), "it still leads in another communicator");
    rank.membership.forget(other, &rank.receiver);
    assert!(!hears(&rank));
    assert_eq!(rank.receiver.dropped(), 0);
}

#[test]
fn packets_of_strangers_and_other_jobs_are_dropped_and_counted() {
    let job = new_job();
    let group = join(job, 0, &MulticastConfig::default()).unwrap();
    let stranger = StdSocket::bind((OWN, 0)).unwrap();
    stranger.connect(group.membership.address()).unwrap();
    let mut unmarked = packet(job, 1);
    unmarked[0] ^= 1;
    let foreign = packet(JobId(job.0 ^ 1), 1);
    let ours = packet(job, 2);
    for bytes in [&b"?"[..], &[0; 4000], &unmarked, &foreign, &ours[..12], &[], &ours] {
        stranger.send(bytes).unwrap();
    }
    assert_eq!(hear(&group).unwrap(), ours);
    assert_eq!(hear(&group), None);
    assert_eq!(group.receiver.dropped(), 6);
}

#[test]
fn membership_lasts_while_renewed_and_ends_on_leave() {
    let job = new_job();
    let config = MulticastConfig::default();
    let (mut group, sender) = (join(job, 0, &config).unwrap(), join(job, 1, &config).unwrap());
    let sent = packet(job, 1);
    for second in [1, 99, 100, 199, 200] {
        let now = Instant::ZERO + Duration::from_secs(second);
        group.membership.renew(now, &group.receiver);
        send(&sender, &sent);
        assert_eq!(hear(&group).unwrap(), sent, "after {second} s");
    }
    assert_eq!(group.membership.renewed_until, Instant::ZERO + Duration::from_secs(300));
    group.membership.leave(&group.receiver).unwrap();
    send(&sender, &sent);
    assert_eq!(hear(&group), None);
}

#[test]
fn next_rank_of_a_host_joins_when_all_earlier_ranks_are_gone() {
    let job = new_job();
    let config = MulticastConfig::default();
    let mut groups: Vec<Group> = (0..3).map(|rank| join(job, rank, &config).unwrap()).collect();
    let (third, second) = (groups.pop().unwrap(), groups.pop().unwrap());
    drop(groups);
    let sent = packet(job, 1);
    send(&second, &sent);
    assert_eq!(hear(&third), None, "nobody is a member");
    let Group { receiver, sender, mut membership } = third;
    membership.on_gone(Instant::ZERO, Rank(1), &receiver);
    membership.renew(Instant::ZERO + RENEWAL_INTERVAL, &receiver);
    let third = Group { receiver, sender, membership };
    send(&second, &sent);
    assert_eq!(hear(&third), None, "rank 0 might still be one");
    let Group { receiver, sender, mut membership } = third;
    membership.on_gone(Instant::ZERO, Rank(0), &receiver);
    let third = Group { receiver, sender, membership };
    send(&second, &sent);
    assert_eq!(hear(&third).unwrap(), sent);
}

#[test]
fn multicast_setup_failures_report_the_reason() {
    let job = new_job();
    let reason = |config: &MulticastConfig| join(job, 0, config).err().unwrap().to_string();
    let usual = MulticastConfig::default();
    assert_eq!(reason(&MulticastConfig { wanted: false, ..usual.clone() }), "switched off");
    let group = Some("10.0.0.1".parse().unwrap());
    let error = reason(&MulticastConfig { group, ..usual.clone() });
    assert_eq!(error, "10.0.0.1 is not a multicast address");
    let error = reason(&MulticastConfig { ttl: 256, ..usual.clone() });
    assert!(error.contains("cannot send to 239.") && error.contains("Invalid argument"), "{error}");
    // Another program has the port on all addresses, and does not share it.
    let other = StdSocket::bind("0.0.0.0:0").unwrap();
    let port = Some(other.local_addr().unwrap().port());
    let error = reason(&MulticastConfig { port, ..usual });
    assert!(error.contains("cannot join 239.") && error.contains("in use"), "{error}");
    let offloads = Offloads { gso: true, gro: true };
    let peers = [SocketAddr::new(OWN, 1)];
    let config = &MulticastConfig::default();
    let (me, own, buffer_bytes) = (Rank(0), OWN, 1 << 20);
    let alone = Plan { config, job, me, own, peers: &peers, offloads, buffer_bytes };
    assert_eq!(alone.join().err().unwrap().to_string(), "there is only one rank");
}

#[test]
fn own_packets_are_looped_back_only_on_hosts_with_other_ranks() {
    let config = MulticastConfig::default();
    let offloads = Offloads { gso: true, gro: true };
    let own = "10.0.0.5".parse().unwrap();
    let interface = address::Interface { name: String::new(), index: 1, host: vec![own] };
    let shares_host = |peers: &[&str]| {
        let peers: Vec<SocketAddr> = peers.iter().map(|peer| peer.parse().unwrap()).collect();
        let (job, me, buffer_bytes) = (JobId(0), Rank(0), 0);
        let plan = Plan { config: &config, job, me, own, peers: &peers, offloads, buffer_bytes };
        plan.shares_host(&interface)
    };
    assert!(!shares_host(&["10.0.0.5:0", "10.0.0.6:7"]));
    assert!(shares_host(&["10.0.0.5:0", "10.0.0.6:7", "10.0.0.5:9"]));
    assert!(shares_host(&["10.0.0.5:0", "127.0.0.1:7"]));
}
