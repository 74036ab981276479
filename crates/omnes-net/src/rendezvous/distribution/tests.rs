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
fn one_that_takes_nothing_keeps_no_other_waiting_for_the_table() {
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
fn all_go_with_what_comes_to_everyone() {
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
fn one_to_which_the_packets_of_a_turn_come_late_is_asked_once_more() {
    let found = |rank, turn| match (rank, turn) {
        (1, 1) => Some(5),
        (1, 2) => None,
        (1, 3) => Some(2),
        _ => Some(0),
    };
    assert_eq!(try_with(found), (go(2), vec![Some(0), Some(2), Some(0)]));
}

#[test]
fn nobody_goes_where_no_packet_comes_to_one_even_late() {
    let found = |until| move |rank, turn| (rank != 2 || turn == until).then_some(1);
    assert_eq!(try_with(found(3)), (go(1), vec![Some(1); 3]));
    let refused = (0..3).map(|_| Verdict::Refused).collect();
    assert_eq!(try_with(found(4)), (refused, vec![Some(1), Some(1), None]));
}

#[test]
fn the_word_to_go_is_believed_of_whoever_knows_the_key_and_what_was_asked() {
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
fn who_does_not_say_that_it_has_gone_is_told_more_and_waited_for_no_longer_than_that_takes() {
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
fn who_does_not_have_the_table_in_time_is_named() {
    let to_all = ToAll::new(&"x", None).unwrap();
    let (readers, theirs) = readers(2);
    (&theirs[1]).write_all(&[READY]).unwrap();
    let limit = Duration::from_millis(100);
    let distribution = Distribution::new(readers, &to_all).unwrap();
    let (rank, error) =
        distribution.run(&mut Deadline::after(limit, None), NO_TRIAL).err().unwrap();
    assert_eq!((rank, error.kind()), (Rank(1), ErrorKind::TimedOut));
}
