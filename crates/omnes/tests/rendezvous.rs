//! Jobs that cannot start, and strangers at the rendezvous: each error names the cause and the
//! remedy, and no rank waits forever.
#![allow(clippy::unwrap_used, missing_docs)]

use omnes::{Communicator, Config, Error, NicChoice, WhileWaiting};
use omnes_wire::JobKey;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const SHORT: Duration = Duration::from_millis(300);
/// The first line of a rank 0.
const GREETING: &str = r#"{"omnes":12,"challenge":1}"#;
/// A limit for events that take milliseconds; reached only in case of failure.
const PATIENCE: Duration = Duration::from_secs(20);

/// A loopback address with a port that is free.
fn rendezvous() -> String {
    let port = omnes::free_port(std::net::Ipv4Addr::LOCALHOST.into()).unwrap();
    format!("127.0.0.1:{port}")
}

/// Joins as `rank` of `size`, on a thread of its own.
fn join(
    address: &str,
    rank: u32,
    size: u32,
    adjust: impl FnOnce(&mut Config),
) -> std::thread::JoinHandle<Result<(), Error>> {
    let mut config = Config::new(rank, size, address);
    config.join_timeout = PATIENCE;
    adjust(&mut config);
    std::thread::spawn(move || Communicator::from_config(config)?.finalize())
}

fn error_of(rank: std::thread::JoinHandle<Result<(), Error>>) -> String {
    rank.join().unwrap().unwrap_err().to_string()
}

/// Gives up soon, with a key of equal digits.
fn with_key(digit: &str) -> impl FnOnce(&mut Config) + use<> {
    let key = JobKey::from_hex(&digit.repeat(32)).unwrap();
    move |config| (config.job_key, config.join_timeout) = (Some(key), 10 * SHORT)
}

/// Connects to a listener that may not exist yet.
fn connect(address: &str) -> TcpStream {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match TcpStream::connect(address) {
            // Without a listener, TCP may connect a port to itself.
            Ok(stream) if stream.local_addr().unwrap() != stream.peer_addr().unwrap() => {
                return stream;
            }
            Ok(_) => {}
            Err(error) => assert!(Instant::now() < deadline, "{address}: {error}"),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn read_line(stream: &TcpStream) -> String {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line
}

/// Ends the wait at the callback's `calls`th call.
fn interrupted_after(calls: u32) -> impl FnOnce(&mut Config) {
    let left = AtomicU32::new(calls);
    let callback = move || match left.fetch_sub(1, Ordering::Relaxed) {
        1 => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    |config| config.while_waiting = Some(WhileWaiting::every(Duration::from_millis(1), callback))
}

#[test]
fn callback_can_interrupt_the_wait_for_other_ranks() {
    let is_interrupted = |rank: std::thread::JoinHandle<Result<(), Error>>| {
        matches!(rank.join().unwrap(), Err(Error::Interrupted))
    };
    for lonely in [0, 1] {
        assert!(is_interrupted(join(&rendezvous(), lonely, 2, interrupted_after(3))));
    }
    // With rank 0 present, rank 1 waits for its answer.
    let address = rendezvous();
    let first = join(&address, 0, 3, |config| config.join_timeout = PATIENCE / 10);
    drop(connect(&address));
    assert!(is_interrupted(join(&address, 1, 3, interrupted_after(20))));
    assert!(error_of(first).contains("did not join"));
}

#[test]
fn unresolvable_rendezvous_address_is_named() {
    for address in ["nowhere", "127.0.0.1", "127.0.0.1:x"] {
        for rank in [0, 1] {
            let error = error_of(join(address, rank, 2, |_| {}));
            let start = format!("cannot resolve the rendezvous address '{address}': ");
            assert!(error.starts_with(&start) && error.contains("; give host:port, "), "{error}");
        }
    }
}

#[test]
fn address_in_use_at_rank_0_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let error = error_of(join(&address, 0, 2, |_| {}));
    assert!(error.starts_with(&format!("rank 0 cannot listen at '{address}': ")), "{error}");
}

#[test]
fn missing_rank_0_is_reported_after_the_join_timeout() {
    let address = rendezvous();
    let error = error_of(join(&address, 1, 2, |config| config.join_timeout = SHORT));
    let start = format!("rank 0 cannot be reached at '{address}' within 300ms: ");
    assert!(error.starts_with(&start), "{error}");
}

#[test]
fn host_name_that_resolves_only_to_loopback_is_reported() {
    // The machine's own name, if it resolves to loopback addresses only.
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let port = rendezvous().rsplit_once(':').unwrap().1.to_owned();
    let address = format!("{}:{port}", name.trim());
    let Ok(resolved) = address.to_socket_addrs() else { return };
    let is_local = resolved.into_iter().all(|address| address.ip().is_loopback());
    if !is_local || name.trim() == "localhost" {
        return;
    }
    let error = error_of(join(&address, 0, 2, |config| config.join_timeout = SHORT));
    assert!(error.contains("See /etc/hosts"), "{error}");
}

#[test]
fn missing_ranks_are_named_to_all_ranks_that_joined() {
    let address = rendezvous();
    let start = Instant::now();
    let zero = join(&address, 0, 5, |config| config.join_timeout = Duration::from_secs(1));
    let three = join(&address, 3, 5, |_| {});
    let error = error_of(zero);
    assert!(error.starts_with("ranks [1, 2, 4] did not join within 1s"), "{error}");
    assert_eq!(error_of(three), "rank 0 refused: ranks 1, 2, 4 did not join within 1s");
    assert!((1..3).contains(&start.elapsed().as_secs()));
}

#[test]
fn wrong_key_is_rejected_and_does_not_end_the_job() {
    let address = rendezvous();
    let zero = join(&address, 0, 2, with_key("a"));
    // A rank with a key trusts no peer that does not know it.
    let unknown = "rank 0 does not know the job key; OMNES_JOB_KEY must be the same for all ranks";
    assert_eq!(error_of(join(&address, 1, 2, with_key("b"))), unknown);
    let wrong = "rank 0 refused: wrong job key: OMNES_JOB_KEY differs from rank 0's";
    assert_eq!(error_of(join(&address, 1, 2, |_| {})), wrong);
    let error = error_of(zero);
    assert!(error.starts_with("ranks [1] did not join within 3s"), "{error}");
}

#[test]
fn rank_with_a_key_rejects_a_rank_0_without_one() {
    let address = rendezvous();
    let zero = join(&address, 0, 2, |config| config.join_timeout = 10 * SHORT);
    let unknown = "rank 0 does not know the job key; OMNES_JOB_KEY must be the same for all ranks";
    assert_eq!(error_of(join(&address, 1, 2, with_key("b"))), unknown);
    assert!(error_of(zero).starts_with("ranks [1] did not join"));
}

#[test]
fn duplicate_rank_number_fails_the_job_for_all_ranks() {
    let address = rendezvous();
    let zero = join(&address, 0, 3, |_| {});
    let others = [join(&address, 1, 3, |_| {}), join(&address, 1, 3, |_| {})];
    let taken = "two processes say that they are rank 1; each rank needs its own number";
    assert_eq!(error_of(zero), taken);
    for other in others {
        assert_eq!(error_of(other), format!("rank 0 refused: {taken}"));
    }
}

#[test]
fn restarted_rank_replaces_its_dead_predecessor() {
    let address = rendezvous();
    let zero = join(&address, 0, 3, |_| {});
    // Ends like a killed process, after it has reported.
    let dead = join(&address, 1, 3, interrupted_after(200));
    assert!(matches!(dead.join().unwrap(), Err(Error::Interrupted)));
    let again = join(&address, 1, 3, |_| {});
    // The last rank arrives after rank 1 has returned.
    std::thread::sleep(2 * SHORT);
    for rank in [again, join(&address, 2, 3, |_| {}), zero] {
        rank.join().unwrap().unwrap();
    }
}

#[test]
fn encryption_without_a_job_key_is_rejected() {
    let address = rendezvous();
    let keyless = join(&address, 0, 2, |config| config.encryption = true);
    let wanted = "encryption needs a job key: set OMNES_JOB_KEY, the same for all ranks";
    assert_eq!(error_of(keyless), wanted);
}

#[test]
fn link_local_addresses_are_rejected_immediately() {
    for address in ["[fe80::1%lo]:7777", "[fe80::1%1]:7777"] {
        let wanted = format!(
            "cannot join the job: the rendezvous address '{address}' is a link-local one, which \
             ranks cannot use; give a global or unique-local one"
        );
        let refused = error_of(join(address, 1, 2, |_| {}));
        assert!(wanted.ends_with(&refused) && refused.contains("link-local"), "{refused}");
    }
}

#[test]
fn startup_error_of_rank_0_is_reported_to_all_ranks() {
    let address = rendezvous();
    let zero = join(&address, 0, 2, |config| config.interface = Some("::1/128".parse().unwrap()));
    let told = error_of(join(&address, 1, 2, |_| {}));
    assert_eq!(told, format!("rank 0 refused: {}", error_of(zero)));
}

#[test]
fn rank_with_different_encryption_is_named() {
    let address = rendezvous();
    let encryption = |config: &mut Config| {
        with_key("a")(config);
        config.encryption = true;
    };
    let zero = join(&address, 0, 2, encryption);
    let differ = "rank 1 and rank 0 differ in whether they encrypt user data; OMNES_ENCRYPT must \
                  be the same for all ranks";
    let refused = error_of(join(&address, 1, 2, with_key("a")));
    assert_eq!(refused, format!("rank 0 refused: {differ}"));
    assert_eq!(error_of(zero), differ);
}

#[test]
fn different_settings_are_named() {
    type Adjust = fn(&mut Config);
    let cases: [(Adjust, &str); 6] = [
        (|it| it.bcast = Some("combined".parse().unwrap()), "OMNES_BCAST is combined"),
        (|it| it.barrier = Some("counter".parse().unwrap()), "OMNES_BARRIER is counter"),
        (|it| it.nic = NicChoice::Off, "OMNES_NIC is off"),
        (|it| it.multisend = "flat:loop".parse().unwrap(), "OMNES_MULTISEND is flat"),
        (|it| it.compare_calls = true, "OMNES_COMPARE is on"),
        (|it| it.eager_bytes = 7, "OMNES_EAGER_BYTES is 7"),
    ];
    for (adjust, words) in cases {
        let address = rendezvous();
        let (zero, one) = (join(&address, 0, 2, |_| {}), join(&address, 1, 2, adjust));
        let error = error_of(zero);
        assert!(error.starts_with(&format!("{words} on rank 1 and ")), "{error}");
        assert_eq!(error_of(one), format!("rank 0 refused: {error}"));
    }
}

#[test]
fn per_rank_settings_are_not_compared() {
    let own = |nic, multisend: &'static str| {
        move |config: &mut Config| {
            (config.nic, config.multisend) = (nic, multisend.parse().unwrap());
        }
    };
    let address = rendezvous();
    let zero = join(&address, 0, 2, own(NicChoice::User, "flat"));
    join(&address, 1, 2, own(NicChoice::Auto, "flat:loop")).join().unwrap().unwrap();
    zero.join().unwrap().unwrap();
}

#[test]
fn different_job_sizes_are_named() {
    let address = rendezvous();
    let zero = join(&address, 0, 3, |_| {});
    let differ = "rank 1 says that the job has 4 ranks, rank 0 says 3";
    assert_eq!(error_of(join(&address, 1, 4, |_| {})), format!("rank 0 refused: {differ}"));
    assert_eq!(error_of(zero), differ);
}

#[test]
fn rank_0_rejects_another_version_and_names_both() {
    let address = rendezvous();
    let zero = join(&address, 0, 2, |_| {});
    let stream = connect(&address);
    assert!(read_line(&stream).starts_with(r#"{"omnes":12,"#));
    // Whatever else it sends, including fields that this version does not know.
    let said = r#"{\"version\":\"99.0.0\",\"rank\":1,\"challenge\":5,\"new\":[1,2]}"#;
    writeln!(&stream, r#"{{"said":"{said}","answer":0}}"#).unwrap();
    let ours = env!("CARGO_PKG_VERSION");
    let differ = format!(
        "versions differ: this rank has {ours}, the other side 99.0.0; \
         use one version for all ranks"
    );
    let refused = format!(r#"{{"said":"{{\"refused\":\"{differ}\"}}","answer":0}}"#);
    assert_eq!(read_line(&stream), refused + "\n");
    assert_eq!(error_of(zero), differ);
}

#[test]
fn rank_0_with_another_protocol_version_is_rejected() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = join(&listener.local_addr().unwrap().to_string(), 1, 2, |_| {});
    let (stream, _) = listener.accept().unwrap();
    writeln!(&stream, r#"{{"omnes":13,"challenge":1}}"#).unwrap();
    let differ =
        "versions differ: this rank has 12, the other side 13; use one version for all ranks";
    assert_eq!(error_of(one), differ);
}

#[test]
fn another_program_at_the_address_is_an_immediate_error() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let one = join(&address, 1, 2, |_| {});
    let (stream, _) = listener.accept().unwrap();
    (&stream).write_all(b"SSH-2.0-other\r\n").unwrap();
    let other = format!(
        "the program that listens at '{address}' is not rank 0 of an Omnes job; is the port in use \
         by another program?"
    );
    assert_eq!(error_of(one), other);
    // Also one that never ends its line.
    let one = join(&address, 1, 2, |_| {});
    let (stream, _) = listener.accept().unwrap();
    (&stream).write_all(b"J\0\0\0").unwrap();
    assert_eq!(error_of(one), other);
}

#[test]
fn join_is_retried_if_the_listener_closes_before_the_greeting() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let one = join(&address, 1, 2, |_| {});
    for linger in [None, Some(Duration::ZERO)] {
        let (stream, _) = listener.accept().unwrap();
        socket2::SockRef::from(&stream).set_linger(linger).unwrap();
    }
    let (stream, _) = listener.accept().unwrap();
    writeln!(&stream, "{GREETING}").unwrap();
    read_line(&stream);
    writeln!(&stream, r#"{{"said":"{{\"refused\":\"full\"}}","answer":0}}"#).unwrap();
    assert_eq!(error_of(one), "rank 0 refused: full");
    let one = join(&address, 1, 2, |config| config.join_timeout = SHORT);
    while !one.is_finished() {
        listener.set_nonblocking(true).unwrap();
        drop(listener.accept());
    }
    let error = error_of(one);
    let start = format!("rank 0 cannot be reached at '{address}' within 300ms: whoever listens");
    assert!(error.starts_with(&start), "{error}");
}

#[test]
fn peer_that_trickles_its_greeting_times_out() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let start = Instant::now();
    let one = join(&address, 1, 2, |config| config.join_timeout = SHORT);
    let (mut stream, _) = listener.accept().unwrap();
    stream.write_all(b"{").unwrap();
    while !one.is_finished() && start.elapsed() < PATIENCE / 2 {
        let _ = stream.write_all(b" ");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(one.is_finished());
    assert!(error_of(one).contains("does not answer in time"));
}

#[test]
fn unknown_host_name_is_retried_until_the_join_timeout() {
    for rank in [0, 1] {
        let start = Instant::now();
        let unknown = join("omnes-unknown.invalid:1", rank, 2, |it| it.join_timeout = SHORT);
        let error = error_of(unknown);
        assert!(error.starts_with("cannot resolve the rendezvous address"), "{error}");
        assert!(start.elapsed() >= SHORT);
    }
}

#[test]
fn strangers_do_not_keep_ranks_from_joining() {
    let address = rendezvous();
    let zero = join(&address, 0, 3, |_| {});
    // Silent callers, one that hangs up, and some that send something else.
    let silent: Vec<TcpStream> = (0..100).map(|_| connect(&address)).collect();
    drop(connect(&address));
    for words in ["GET / HTTP/1.1\r\n\r\n", "{}\n", "{\"version\":\"", "\n", "\0\0\n"] {
        connect(&address).write_all(words.as_bytes()).unwrap();
    }
    let endless = std::thread::spawn({
        let mut stream = connect(&address);
        // Ends when rank 0 has read enough.
        move || while stream.write_all(&[b'x'; 1 << 16]).is_ok() {}
    });
    let start = Instant::now();
    let others = [join(&address, 1, 3, |_| {}), join(&address, 2, 3, |_| {})];
    for rank in others.into_iter().chain([zero]) {
        rank.join().unwrap().unwrap();
    }
    assert!(start.elapsed() < PATIENCE / 2, "{:?}", start.elapsed());
    endless.join().unwrap();
    // Callers that have been silent all the time are disconnected once the job has begun.
    for mut stream in silent {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut greeting = Vec::new();
        let _ = stream.read_to_end(&mut greeting);
    }
}

#[test]
fn rank_reconnects_after_a_dropped_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = join(&listener.local_addr().unwrap().to_string(), 1, 2, |_| {});
    for _ in 0..2 {
        let (stream, _) = listener.accept().unwrap();
        writeln!(&stream, "{GREETING}").unwrap();
        assert!(read_line(&stream).contains("version"));
    }
    let (stream, _) = listener.accept().unwrap();
    writeln!(&stream, "{GREETING}").unwrap();
    read_line(&stream);
    // Text from another side cannot control the terminal.
    writeln!(&stream, r#"{{"said":"{{\"refused\":\"full\\u001b[2J\"}}","answer":0}}"#).unwrap();
    assert_eq!(error_of(one), "rank 0 refused: full\u{fffd}[2J");
}

#[test]
fn reconnecting_rank_waits_while_rank_0_has_a_full_backlog() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    // Calls into the kernel are short if a callback runs between them.
    let one = join(&address, 1, 2, interrupted_after(u32::MAX));
    let (stream, _) = listener.accept().unwrap();
    let door = socket2::SockRef::from(&listener);
    door.listen(0).unwrap();
    let _other = connect(&address);
    writeln!(&stream, "{GREETING}").unwrap();
    read_line(&stream);
    drop(stream);
    std::thread::sleep(Duration::from_millis(1500));
    assert!(!one.is_finished());
    door.listen(8).unwrap();
    let _ = listener.accept().unwrap();
    let (stream, _) = listener.accept().unwrap();
    writeln!(&stream, "{GREETING}").unwrap();
    read_line(&stream);
    writeln!(&stream, r#"{{"said":"{{\"refused\":\"full\"}}","answer":0}}"#).unwrap();
    assert_eq!(error_of(one), "rank 0 refused: full");
}

#[test]
fn silent_rank_0_times_out() {
    let limit = Duration::from_secs(3);
    let ranks = [Duration::ZERO, Duration::from_millis(1)].map(|interval| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let rank = join(&listener.local_addr().unwrap().to_string(), 1, 2, |config| {
            let callback = WhileWaiting::every(interval, || ControlFlow::Continue(()));
            (config.while_waiting, config.join_timeout) = (Some(callback), limit);
        });
        (Instant::now(), listener.accept().unwrap(), rank)
    });
    for (start, _silent, rank) in ranks {
        let error = error_of(rank);
        assert!(error.starts_with("lost the connection to rank 0"), "{error}");
        // Not once for connecting and once more for reading.
        assert!((limit..2 * limit).contains(&start.elapsed()), "{error}");
    }
}

#[test]
fn rank_0_that_disconnects_is_reported_lost() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let one = join(&address, 1, 2, |_| {});
    let (stream, _) = listener.accept().unwrap();
    drop(listener);
    writeln!(&stream, "{GREETING}").unwrap();
    read_line(&stream);
    drop(stream);
    let error = error_of(one);
    assert!(error.starts_with(&format!("lost the connection to rank 0 at '{address}'")), "{error}");
}

#[test]
fn unproven_refusal_is_not_trusted() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = join(&listener.local_addr().unwrap().to_string(), 1, 2, with_key("a"));
    let (stream, _) = listener.accept().unwrap();
    writeln!(&stream, "{GREETING}").unwrap();
    read_line(&stream);
    writeln!(&stream, r#"{{"said":"{{\"refused\":\"go away\"}}","answer":7}}"#).unwrap();
    let unknown = "rank 0 does not know the job key; OMNES_JOB_KEY must be the same for all ranks";
    assert_eq!(error_of(one), unknown);
}

/// User id of a user who owns nothing.
const NOBODY: u32 = 65534;

#[test]
fn other_local_users_are_rejected_without_a_key() {
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
        let must = std::env::var("OMNES_REQUIRE").is_ok_and(|it| it.contains("root"));
        assert!(!must, "needs root");
        return println!("skipped: needs root");
    }
    let address = rendezvous();
    let zero = join(&address, 0, 2, |config| config.join_timeout = Duration::from_secs(2));
    drop(connect(&address));
    let said = r#"{\"version\":\"0\",\"rank\":1,\"challenge\":5}"#;
    let script = format!(
        r#"exec 3<>/dev/tcp/{}; echo '{{"said":"{said}","answer":0}}' >&3; head -n 2 <&3"#,
        address.replace(':', "/")
    );
    let mut stranger = std::process::Command::new("bash");
    let heard = stranger.args(["-c", &script]).uid(NOBODY).output().unwrap();
    let heard = String::from_utf8_lossy(&heard.stdout).into_owned();
    assert!(heard.contains("takes no rank of user 65534"), "{heard}");
    assert!(error_of(zero).starts_with("ranks [1] did not join"));
}

#[test]
fn job_of_one_rank_starts_alone() {
    join(&rendezvous(), 0, 1, |_| {}).join().unwrap().unwrap();
}

#[test]
fn unlimited_timeouts_do_not_end_a_job() {
    for (wait, silence) in [(Duration::MAX, Duration::MAX), (PATIENCE, SHORT)] {
        let adjust = |it: &mut Config| (it.join_timeout, it.peer_timeout) = (wait, silence);
        join(&rendezvous(), 0, 1, adjust).join().unwrap().unwrap();
    }
    let endless =
        |it: &mut Config| (it.join_timeout, it.spin) = (Duration::MAX, Some(Duration::MAX));
    let address = rendezvous();
    let ranks = [join(&address, 0, 2, endless), join(&address, 1, 2, endless)];
    ranks.into_iter().for_each(|rank| rank.join().unwrap().unwrap());
}

#[test]
fn too_large_job_is_rejected_and_long_lists_of_ranks_are_shortened() {
    let error = error_of(join(&rendezvous(), 0, 100_000_000, |_| {}));
    assert_eq!(error, "a job of 100000000 ranks is too large; at most 65536");
    let error = error_of(join(&rendezvous(), 0, 1000, |it| it.join_timeout = SHORT));
    assert!(
        error.starts_with("ranks [1, 2, ") && error.contains(", 16 and 983 more] did"),
        "{error}"
    );
}

/// The largest job that has sockets for each pair, with a port for each in its table, and one more
/// rank.
#[test]
fn jobs_start_at_and_above_the_limit_for_sockets_per_pair() {
    for size in [32, 33] {
        let address = rendezvous();
        let alone = |config: &mut Config| config.shared_memory = false;
        let ranks: Vec<_> = (0..size).map(|rank| join(&address, rank, size, alone)).collect();
        for (rank, outcome) in ranks.into_iter().enumerate() {
            let outcome = outcome.join().unwrap();
            outcome.unwrap_or_else(|error| panic!("rank {rank} of {size}: {error}"));
        }
    }
}
