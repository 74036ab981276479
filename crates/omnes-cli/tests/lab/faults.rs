//! Faults on links: how many packets they affect, which ones, and that they are repeatable.

use super::*;

/// Sends packets numbered 0 to `count`.
fn send_numbered(from: &UdpSocket, to: &UdpSocket, count: u32) {
    let to = to.local_addr().unwrap();
    (0..count).for_each(|number| assert_eq!(from.send_to(&number.to_be_bytes(), to).unwrap(), 4));
}

/// Numbers of the next `count` packets, after which there must be no more.
fn receive_numbered(socket: &UdpSocket, count: usize) -> Vec<u32> {
    let mut buffer = [0; 4];
    let mut numbers = Vec::new();
    for received in 0..count {
        let packet = socket.recv(&mut buffer);
        packet.unwrap_or_else(|error| panic!("packet {received} of {count}: {error}"));
        numbers.push(u32::from_be_bytes(buffer));
    }
    socket.set_nonblocking(true).unwrap();
    assert_eq!(socket.recv(&mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock, "too many");
    socket.set_nonblocking(false).unwrap();
    numbers
}

#[test]
fn five_percent_loss_is_accurate_counted_and_reproducible() {
    if !is_root() {
        return;
    }
    let survivors = || {
        let lab = TestLab::up(2, "--loss 5% --fault-seed 7");
        let (from, to) = (lab.socket(0, false), lab.socket(1, false));
        send_numbered(&from, &to, 2000);
        let lost = lab.counter(0, "dropped");
        // Five standard deviations around 100.
        assert!((51..=149).contains(&lost), "{lost} of 2000 lost");
        assert_eq!(lab.counter(0, "faulted_packets"), 2000);
        receive_numbered(&to, 2000 - lost)
    };
    assert_eq!(survivors(), survivors());
}

#[test]
fn receive_loss_is_independent_per_host_counted_and_reproducible() {
    if !is_root() {
        return;
    }
    // Losses of the two members of a group for the same packets.
    let losses = || {
        let lab = TestLab::up(3, "--receive-loss 20% --fault-seed 7");
        let (from, one) = (lab.socket(0, false), lab.member(1, 0));
        let other = lab.member(2, one.local_addr().unwrap().port());
        send_numbered(&from, &one, 2000);
        assert_eq!((lab.counter(0, "faulted_packets"), lab.counter(0, "dropped")), (2000, 0));
        assert_eq!((lab.counter(0, "received"), lab.counter(0, "receive_dropped")), (0, 0));
        [(1, one), (2, other)].map(|(host, member)| {
            let lost = lab.counter(host, "receive_dropped");
            // Five standard deviations around 400.
            assert!((311..=489).contains(&lost), "host {host} lost {lost} of 2000");
            assert_eq!(lab.counter(host, "received"), 2000);
            let came: BTreeSet<_> = receive_numbered(&member, 2000 - lost).into_iter().collect();
            (0..2000).filter(|number| !came.contains(number)).collect::<BTreeSet<_>>()
        })
    };
    let [one, other] = losses();
    // A fifth of a fifth: five standard deviations around 80.
    let both = one.intersection(&other).count();
    assert!((37..=123).contains(&both), "{both} of 2000 lost at both hosts");
    assert_eq!(losses(), [one, other]);
}

#[test]
fn receive_loss_applies_per_segment_and_can_be_disabled_at_run_time() {
    if !is_root() {
        return;
    }
    let lab = TestLab::up(2, "--receive-loss 100%");
    let (from, to) = (lab.socket(0, true), lab.socket(1, true));
    let train = lab.socket(0, true);
    set_option(&train, libc::SOL_UDP, libc::UDP_SEGMENT, 1000);
    train.send_to(&[0; 40_000], to.local_addr().unwrap()).unwrap();
    assert_eq!((lab.counter(1, "received"), lab.counter(1, "receive_dropped")), (40, 40));
    // The other fault is so rare that it keeps the programs attached, and loses nothing.
    lab.set("--receive-loss 0% --loss 0.000001% --fault-seed 7");
    send_numbered(&from, &to, 1000);
    assert_eq!(receive_numbered(&to, 1000).len(), 1000);
    assert_eq!((lab.counter(1, "received"), lab.counter(1, "receive_dropped")), (1040, 40));
    // A program that remained after the removal of the last fault would still drop everything.
    lab.set("--receive-loss 100% --loss 0%");
    lab.set("--receive-loss 0%");
    send_numbered(&from, &to, 1000);
    assert_eq!(receive_numbered(&to, 1000).len(), 1000);
}

#[test]
fn duplicates_arrive_and_are_counted() {
    if !is_root() {
        return;
    }
    let lab = TestLab::up(2, "--duplicate 10% --fault-seed 7");
    let (from, to) = (lab.socket(0, true), lab.socket(1, true));
    send_numbered(&from, &to, 1000);
    let twice = lab.counter(0, "duplicated");
    assert!((50..=150).contains(&twice), "{twice} of 1000 twice");
    let numbers = receive_numbered(&to, 1000 + twice);
    assert_eq!(numbers.iter().collect::<BTreeSet<_>>().len(), 1000);
}

#[test]
fn reordered_packets_arrive_late_without_loss() {
    if !is_root() {
        return;
    }
    let lab = TestLab::up(2, "--reorder 5% --fault-seed 7");
    let (from, to) = (lab.socket(0, false), lab.socket(1, false));
    send_numbered(&from, &to, 2000);
    let numbers = receive_numbered(&to, 2000);
    assert!(numbers.iter().collect::<BTreeSet<_>>().len() == 2000);
    let late = numbers.windows(2).filter(|pair| pair[1] < pair[0]).count();
    assert!(late > 0 && lab.counter(0, "reordered") >= late, "{late} overtaken");
}

#[test]
fn delay_applies_in_both_directions_and_can_be_removed_at_run_time() {
    if !is_root() {
        return;
    }
    let lab = TestLab::up(2, "--loss 0%");
    let (one, other) = (lab.socket(0, false), lab.socket(1, false));
    assert!(round_trip(&one, &other, 20) < Duration::from_millis(10));
    lab.set("--delay 5ms");
    assert!(round_trip(&one, &other, 3) >= Duration::from_millis(10));
    assert_eq!(lab.counter(0, "delayed"), 3);
    lab.set("--delay 0us");
    assert!(round_trip(&one, &other, 20) < Duration::from_millis(10));
    assert_eq!(lab.listed()["link"]["delay_ns"], 0);
}

#[test]
fn faults_apply_to_each_segment_of_a_train() {
    if !is_root() {
        return;
    }
    // So rare that none is lost: only the counting is needed.
    let lab = TestLab::up(2, "--loss 0.000001% --fault-seed 7");
    let (from, to) = (lab.socket(0, false), lab.socket(1, false));
    set_option(&from, libc::SOL_UDP, libc::UDP_SEGMENT, 1000);
    from.send_to(&[0; 40_000], to.local_addr().unwrap()).unwrap();
    assert_eq!((0..40).map(|_| to.recv(&mut [0; 65_536]).unwrap()).sum::<usize>(), 40_000);
    assert_eq!(lab.counter(0, "faulted_packets"), 40);
    // Without faults it crosses whole, and no program processes it.
    let before = lab.counter(0, "tx_packets");
    lab.set("--loss 0%");
    from.send_to(&[0; 40_000], to.local_addr().unwrap()).unwrap();
    assert_eq!((0..40).map(|_| to.recv(&mut [0; 65_536]).unwrap()).sum::<usize>(), 40_000);
    let crossed = lab.counter(0, "tx_packets") - before;
    assert!(crossed < 40, "{crossed} packets for one train");
}
