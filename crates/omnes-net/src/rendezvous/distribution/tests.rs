#![allow(clippy::unwrap_used)]
use super::*;
use std::net::TcpListener;

const PATIENCE: Duration = Duration::from_secs(60);
const NO_TRIAL: Option<fn(Turn) -> Found> = None;
const NO_KEY: Release<'_> = Release { key: None, challenge: 0 };

/// `count` readers, and the other ends of their connections.
fn readers(count: u32) -> (Vec<Reader<'static>>, Vec<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let connect = |rank| {
        let theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        theirs.set_read_timeout(Some(PATIENCE)).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let line = b"{".to_vec();
        let (rank, release, is_asked) = (Rank(rank), NO_KEY, rank < 3);
        (Reader { rank, stream, release, line, is_asked }, theirs)
    };
    (1..=count).map(connect).unzip()
}

fn take(mut stream: &TcpStream, to_all: &ToAll) {
    let mut line = vec![0; 1 + to_all.end().len()];
    stream.read_exact(&mut line).unwrap();
    assert!(line.starts_with(b"{") && line.ends_with(to_all.end()));
}

#[test]
fn slow_reader_does_not_delay_the_table_for_other_ranks() {
    // More than the kernel buffers for a process that does not read.
    let to_all = ToAll::new(&"x".repeat(32 << 20), None).unwrap();
    let (readers, theirs) = readers(3);
    std::thread::scope(|scope| {
        let distribution = Distribution::new(readers, &to_all).unwrap();
        let zero = scope.spawn(|| distribution.run(&mut Deadline::after(PATIENCE, None), NO_TRIAL));
        for slower in theirs.iter().rev() {
            take(slower, &to_all);
            // None may go: the first does not have the table yet.
            let mut stream: &TcpStream = slower;
            stream.set_nonblocking(true).unwrap();
            let said = stream.read(&mut [0]).unwrap_err();
            assert_eq!(said.kind(), ErrorKind::WouldBlock);
            stream.set_nonblocking(false).unwrap();
        }
        let deadline = || Deadline::after(PATIENCE, None);
        let waiting: Vec<_> = theirs
            .iter()
            .map(|stream| {
                scope.spawn(move || wait_for_go(stream, NO_KEY, &mut deadline(), |_| None))
            })
            .collect();
        for rank in waiting {
            assert_eq!(rank.join().unwrap().unwrap(), Verdict::Go(0));
        }
        assert!(zero.join().unwrap().is_ok());
    });
}

/// Verdicts of ranks 1 to 3, of which the last is not asked, and the packets found, where `found`
/// returns the packets that each of the other ranks has received in each turn.
fn try_with(found: impl Fn(u32, usize) -> Found + Sync) -> (Vec<Verdict>, Vec<Found>) {
    let to_all = ToAll::new(&"x", None).unwrap();
    let (readers, theirs) = readers(3);
    let deadline = || Deadline::after(PATIENCE, None);
    let takes = |rank| {
        let (mut turns, found) = (0, &found);
        move |turn| {
            turns += 1;
            assert!((turn == Turn::Again) == (turns == 2) && rank < 3 && turns < 4);
            found(rank, turns)
        }
    };
    std::thread::scope(|scope| {
        let ranks: Vec<_> = (1..)
            .zip(&theirs)
            .map(|(rank, stream)| {
                let (to_all, take_turn) = (&to_all, takes(rank));
                scope.spawn(move || {
                    take(stream, to_all);
                    wait_for_go(stream, NO_KEY, &mut deadline(), take_turn)
                })
            })
            .collect();
        let distribution = Distribution::new(readers, &to_all).unwrap();
        let Distributed { streams, found, .. } =
            distribution.run(&mut deadline(), Some(takes(0))).ok().unwrap();
        if found.values().any(Option::is_none) {
            streams.iter().for_each(|(_, stream)| tell_refused(stream).unwrap());
        }
        let verdicts = ranks.into_iter().map(|rank| rank.join().unwrap().unwrap());
        (verdicts.collect(), found.into_values().collect())
    })
}

fn go(place: u8) -> Vec<Verdict> {
    [place; 3].map(Verdict::Go).into()
}

#[test]
fn all_ranks_start_with_the_longest_packets_that_reach_everyone() {
    assert_eq!(try_with(|_, _| Some(0)), (go(0), vec![Some(0); 3]));
    for lacking in 0..3 {
        let found = |rank, turn| Some(if rank == lacking { 9 - 3 * turn as u8 } else { 0 });
        let each = (0..3).map(|rank| Some(if rank == lacking { 3 } else { 0 }));
        assert_eq!(try_with(found), (go(3), each.collect()));
    }
    // A length that arrived in one turn need not arrive in the other.
    let found = |rank, turn| if turn == 2 && rank < 2 { Some(0) } else { Some(2 - rank as u8) };
    assert_eq!(try_with(found), (go(0), vec![Some(0); 3]));
}

#[test]
fn rank_whose_trial_packets_arrive_late_is_asked_again() {
    let found = |rank, turn| match (rank, turn) {
        (1, 1) => Some(5),
        (1, 2) => None,
        (1, 3) => Some(2),
        _ => Some(0),
    };
    assert_eq!(try_with(found), (go(2), vec![Some(0), Some(2), Some(0)]));
}

#[test]
fn all_ranks_are_refused_when_one_receives_no_trial_packet() {
    let found = |until| move |rank, turn| (rank != 2 || turn == until).then_some(1);
    assert_eq!(try_with(found(3)), (go(1), vec![Some(1); 3]));
    let refused = (0..3).map(|_| Verdict::Refused).collect();
    assert_eq!(try_with(found(4)), (refused, vec![Some(1), Some(1), None]));
}

#[test]
fn go_signal_must_prove_the_key_and_the_challenge() {
    let (own, other) = (JobKey::new([1; 16]), JobKey::new([2; 16]));
    let release = Release { key: Some(&own), challenge: 7 };
    let heard = |bytes: &[u8]| {
        let (readers, theirs) = readers(1);
        (&readers[0].stream).write_all(bytes).unwrap();
        wait_for_go(&theirs[0], release, &mut Deadline::after(PATIENCE, None), |_| None)
    };
    let said = |letter: u8, proven: u8, by: Release<'_>| {
        heard(&[&[letter][..], &by.proof(proven)].concat()).unwrap()
    };
    assert_eq!(said(b'C', b'C', release), Verdict::Go(2));
    assert_eq!(said(b'B', b'A', release), Verdict::Unproven);
    for by in
        [NO_KEY, Release { key: Some(&other), ..release }, Release { challenge: 8, ..release }]
    {
        assert_eq!(said(b'A', b'A', by), Verdict::Unproven);
    }
    assert_eq!(heard(b"a").unwrap_err().kind(), ErrorKind::InvalidData);
}

#[test]
fn rank_that_does_not_confirm_its_start_is_nudged_for_a_limited_time() {
    let to_all = ToAll::new(&"x", None).unwrap();
    let (readers, theirs) = readers(3);
    let heard = |mut stream: &TcpStream| {
        stream.set_nonblocking(true).unwrap();
        let mut said = vec![0; 1000];
        let bytes = stream.read(&mut said).unwrap();
        said.drain(bytes..);
        said.split_off(1 + to_all.end().len() + 1 + PROOF_BYTES)
    };
    theirs.iter().for_each(|mut stream| stream.write_all(&[READY]).unwrap());
    (&theirs[0]).write_all(&[READY]).unwrap();
    theirs[1].shutdown(std::net::Shutdown::Write).unwrap();
    let since = Instant::now();
    let distribution = Distribution::new(readers, &to_all).unwrap();
    let distributed = distribution.run(&mut Deadline::after(PATIENCE, None), NO_TRIAL);
    assert_eq!(distributed.ok().unwrap().streams.len(), 3);
    assert!(since.elapsed() >= GO_TIME_MAX);
    assert_eq!([heard(&theirs[0]), heard(&theirs[1])], [[0; 0]; 2]);
    assert_eq!(heard(&theirs[2]), [READY; NUDGES_MAX]);
}

#[test]
fn rank_without_the_table_at_the_deadline_is_named() {
    let to_all = ToAll::new(&"x", None).unwrap();
    let (readers, theirs) = readers(2);
    (&theirs[1]).write_all(&[READY]).unwrap();
    let limit = Duration::from_millis(100);
    let distribution = Distribution::new(readers, &to_all).unwrap();
    let (rank, error) =
        distribution.run(&mut Deadline::after(limit, None), NO_TRIAL).err().unwrap();
    assert_eq!((rank, error.kind()), (Rank(1), ErrorKind::TimedOut));
}
