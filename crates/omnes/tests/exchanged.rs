//! Communicators of ranks that exchange by means of their own. Ranks are threads here, each with
//! its own jobs, like processes; some ranks are two threads.
#![allow(clippy::unwrap_used, missing_docs)]

mod ranks;

use omnes::{Communicator, Config, Error, Exchange, JobKey, Jobs, WhileWaiting};
use ranks::Table;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Runs `body` as every one of `size` processes; results in order of ranks.
fn with_processes<T: Send>(size: u32, body: impl Fn(u32, &Jobs) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let start = |rank| {
            let body = &body;
            scope.spawn(move || body(rank, &Jobs::default()))
        };
        let all: Vec<_> = (0..size).map(start).collect();
        all.into_iter().map(|process| process.join().unwrap()).collect()
    })
}

/// Sockets, each rank as a node of its own.
fn by_sockets(config: &mut Config) {
    config.shared_memory = false;
}

fn all_hear_rank_0(comm: &Communicator, word: u8) {
    let mut heard = [if comm.rank() == 0 { word } else { 0 }];
    comm.bcast(0, &mut heard).unwrap();
    assert_eq!(heard, [word]);
    comm.barrier().unwrap();
}

#[test]
fn job_outlives_its_first_communicator_and_ends_for_all_together() {
    let table = Table::new(3);
    with_processes(3, |rank, jobs| {
        let ranks = table.seat(rank);
        let first = jobs.join(&ranks, by_sockets).unwrap();
        assert_eq!((first.rank(), first.size(), first.node_count()), (rank, 3, 3));
        let copy = first.dup().unwrap();
        drop(first);
        all_hear_rank_0(&copy, 7);
        let again = jobs.join(&ranks, |_| panic!("the job has its settings")).unwrap();
        all_hear_rank_0(&again, 8);
        drop(copy);
        jobs.leave().unwrap();
        drop(again);
        // No job is left.
        jobs.leave().unwrap();
    });
}

/// A rank that continues slowly after each exchange, so that the others wait for it.
struct Slow<'a>(ranks::Seat<'a>);

impl Exchange for Slow<'_> {
    fn rank(&self) -> u32 {
        self.0.rank()
    }

    fn size(&self) -> u32 {
        self.0.size()
    }

    fn allgather(&self, own: &[u8]) -> Result<Vec<u8>, Error> {
        let all = self.0.allgather(own);
        std::thread::sleep(Duration::from_millis(if self.rank() == 2 { 20 } else { 0 }));
        all
    }
}

#[test]
fn callback_during_join_runs_on_the_joining_thread() {
    let table = Table::new(3);
    let calls = AtomicU32::new(0);
    with_processes(3, |rank, jobs| {
        let (own, callers) = (std::thread::current().id(), Arc::new(Mutex::new(Vec::new())));
        let comm = jobs.join(&Slow(table.seat(rank)), |config| {
            let callers = callers.clone();
            let callback = move || callers.lock().unwrap().push(std::thread::current().id());
            config.while_waiting = Some(WhileWaiting::new(callback));
        });
        comm.unwrap().barrier().unwrap();
        jobs.leave().unwrap();
        let callers = callers.lock().unwrap();
        assert!(callers.iter().all(|caller| *caller == own), "{callers:?}, not only {own:?}");
        calls.fetch_add(callers.len() as u32, Ordering::Relaxed);
    });
    assert!(calls.into_inner() > 0);
}

#[test]
fn failed_join_is_not_retried_and_all_ranks_report_the_reason() {
    let (table, reversed) = (Table::new(3), Table::new(3));
    with_processes(3, |rank, jobs| {
        let silence = "no UDP packets arrived from rank";
        let met = jobs.join(&table.seat(rank), |config| {
            by_sockets(config);
            if rank == 0 {
                // A rank that does not respond immediately is silent.
                config.peer_timeout = Duration::from_nanos(1);
            }
        });
        let first = met.err().unwrap().to_string();
        assert!(first.starts_with(&format!("rank 0: {silence} ")), "{first}");
        let again = |ranks: &dyn Exchange| {
            let met = jobs.join(ranks, |_| panic!("nobody meets"));
            met.err().unwrap().to_string()
        };
        assert_eq!(again(&table.seat(rank)), first);
        let other = again(&reversed.seat(2 - rank));
        assert!(other.contains(silence), "{other}");
    });
}

#[test]
fn encryption_requires_a_job_key_that_is_not_exchanged() {
    let (without, with) = (Table::new(2), Table::new(2));
    with_processes(2, |rank, jobs| {
        let encrypted =
            |config: &mut Config| (config.encryption, config.shared_memory) = (true, false);
        let Err(error) = jobs.join(&without.seat(rank), encrypted) else { panic!("rank {rank}") };
        assert!(error.to_string().contains("set OMNES_JOB_KEY"), "{error}");
        let comm = jobs.join(&with.seat(rank), |config| {
            encrypted(config);
            config.job_key = JobKey::from_hex(&"5a".repeat(16)).ok();
        });
        all_hear_rank_0(&comm.unwrap(), 9);
        jobs.leave().unwrap();
    });
}

#[test]
fn settings_of_the_program_apply_except_for_rank_and_size() {
    let table = Table::new(2);
    with_processes(2, |rank, jobs| {
        let comm = jobs.join(&table.seat(rank), |config| {
            assert_eq!((config.rank, config.size), (rank, 2));
            (config.rank, config.size, config.shared_memory) = (0, 1, true);
        });
        assert_eq!(comm.as_ref().unwrap().node_count(), 1);
        assert_eq!((comm.as_ref().unwrap().rank(), comm.as_ref().unwrap().size()), (rank, 2));
        jobs.leave().unwrap();
    });
}

#[test]
fn ninth_job_is_joined_if_larger_than_all_earlier_ones() {
    const SMALL: usize = 8;
    let tables: Vec<Table> = (0..SMALL).map(|_| Table::new(2)).collect();
    let large = Table::new(3);
    let join = |jobs: &Jobs, table: &Table, rank| {
        jobs.join(&table.seat(rank), |config| config.shared_memory = true).unwrap()
    };
    std::thread::scope(|scope| {
        for rank in 0..3 {
            let (tables, large) = (&tables, &large);
            scope.spawn(move || {
                let jobs = Jobs::default();
                // Rank 0 is in all small jobs; the other ranks of these are different processes
                // each time.
                let small = |number: usize| match rank {
                    0 => drop(join(&jobs, &tables[number], 0)),
                    1 => drop(join(&Jobs::default(), &tables[number], 1)),
                    _ => {}
                };
                (0..SMALL).for_each(small);
                all_hear_rank_0(&join(&jobs, large, rank), 9);
                jobs.leave()
            });
        }
    });
}

#[test]
fn ninth_job_is_rejected_on_all_ranks_and_the_other_eight_continue() {
    let tables: Vec<Table> = (0..9).map(|_| Table::new(2)).collect();
    let center = Jobs::default();
    let join = |jobs: &Jobs, number: usize, rank| {
        jobs.join(&tables[number].seat(rank), |config| config.shared_memory = true)
    };
    std::thread::scope(|scope| {
        // Each of the others is a process that has not been in a job yet.
        let others = scope.spawn(|| {
            let others: Vec<Jobs> = (0..9).map(|_| Jobs::default()).collect();
            let joined = others.iter().enumerate().map(|(number, jobs)| join(jobs, number, 1));
            let mut joined: Vec<_> = joined.collect();
            let refused = joined.pop().unwrap().err().unwrap();
            for (number, comm) in joined.into_iter().enumerate() {
                all_hear_rank_0(&comm.unwrap(), number as u8);
            }
            std::thread::scope(|scope| {
                // The center leaves its jobs in an order of its own.
                for jobs in &others {
                    scope.spawn(|| jobs.leave().unwrap());
                }
            });
            refused.to_string()
        });
        let mut joined: Vec<_> = (0..9).map(|number| join(&center, number, 0)).collect();
        let refused = joined.pop().unwrap().err().unwrap().to_string();
        assert_eq!(refused, "rank 0: it is in 8 jobs already, and none of them is smaller");
        for (number, comm) in joined.into_iter().enumerate() {
            all_hear_rank_0(&comm.unwrap(), number as u8);
        }
        center.leave().unwrap();
        assert_eq!(others.join().unwrap(), refused);
    });
}

#[test]
fn two_ranks_in_one_process_are_rejected() {
    let (table, jobs) = (Table::new(2), Jobs::default());
    std::thread::scope(|scope| {
        for rank in 0..2 {
            let (table, jobs) = (&table, &jobs);
            scope.spawn(move || {
                let error = jobs.join(&table.seat(rank), |_| {}).err().unwrap().to_string();
                assert_eq!(error, "rank 1: it is of the same process as rank 0");
            });
        }
    });
}

#[test]
fn out_of_range_rank_is_rejected_without_any_exchange() {
    struct Alone;
    impl Exchange for Alone {
        fn rank(&self) -> u32 {
            3
        }

        fn size(&self) -> u32 {
            3
        }

        fn allgather(&self, _: &[u8]) -> Result<Vec<u8>, Error> {
            panic!("nobody is there")
        }
    }
    let error = Jobs::default().join(&Alone, |_| {}).err().unwrap();
    assert!(matches!(error, Error::RankOutOfRange { rank: 3, size: 3 }), "{error}");
}

#[test]
fn communicator_can_serve_as_the_exchange() {
    ranks::with_ranks(
        2,
        |_| {},
        |world| {
            let jobs = Jobs::default();
            let comm = jobs.join(&world, by_sockets).unwrap();
            all_hear_rank_0(&comm, 3);
            drop(comm);
            jobs.leave().unwrap();
            world.finalize().unwrap();
        },
    );
}

/// Two threads per process create communicators as fast as they can, each with its own partners in
/// the other process: no two at the same time may get the same number, or their messages would mix.
#[test]
fn concurrently_created_communicators_do_not_mix_messages() {
    const ROUNDS: u8 = 20;
    let tables: Vec<Table> = (0..3).map(|_| Table::new(2)).collect();
    with_processes(2, |rank, jobs| {
        drop(jobs.join(&tables[0].seat(rank), by_sockets).unwrap());
        std::thread::scope(|scope| {
            for (thread, table) in (1..).zip(&tables[1..]) {
                scope.spawn(move || {
                    let ranks = table.seat(rank);
                    let mut kept = Vec::new();
                    for round in 0..ROUNDS {
                        let comm = jobs.join(&ranks, |_| panic!("there is a job")).unwrap();
                        let copy = comm.dup().unwrap();
                        all_hear_rank_0(&comm, thread * 100 + round);
                        all_hear_rank_0(&copy, thread * 100 + ROUNDS + round);
                        kept.push(Arc::new((comm, copy)));
                    }
                });
            }
        });
        jobs.leave().unwrap();
    });
}

/// An exchange in which one row is received differently from what was sent.
struct Forged<'a> {
    ranks: ranks::Seat<'a>,
    row: usize,
    said: &'static str,
    read: &'static str,
    is_forged: AtomicBool,
}

impl<'a> Forged<'a> {
    fn new(ranks: ranks::Seat<'a>, row: usize, said: &'static str, read: &'static str) -> Self {
        Self { ranks, row, said, read, is_forged: AtomicBool::new(false) }
    }
}

impl Exchange for Forged<'_> {
    fn rank(&self) -> u32 {
        self.ranks.rank()
    }

    fn size(&self) -> u32 {
        self.ranks.size()
    }

    fn allgather(&self, own: &[u8]) -> Result<Vec<u8>, Error> {
        let mut all = self.ranks.allgather(own)?;
        let row = &mut all[self.row * own.len()..][..own.len()];
        if let Ok(said) = std::str::from_utf8(row)
            && said.contains(self.said)
        {
            self.is_forged.store(true, Ordering::Relaxed);
            let mut read = said.replacen(self.said, self.read, 1).into_bytes();
            // Rows are padded with blanks.
            read.resize(own.len(), b' ');
            row.copy_from_slice(&read);
        }
        Ok(all)
    }
}

#[test]
fn rank_with_another_version_is_named_on_all_ranks() {
    let version = concat!("\"version\":\"", env!("CARGO_PKG_VERSION"));
    let forged = [
        ("\"omnes\":1,", "\"omnes\":7,", "it has protocol 7, rank 0 has 1"),
        (version, "\"version\":\"none", "it has Omnes none, rank 0 has "),
    ];
    for (said, read, reason) in forged {
        let table = Table::new(3);
        with_processes(3, |rank, jobs| {
            let ranks = Forged::new(table.seat(rank), 1, said, read);
            let error = jobs.join(&ranks, by_sockets).err().unwrap().to_string();
            assert!(ranks.is_forged.into_inner());
            assert!(error.starts_with(&format!("rank 1: versions differ: {reason}")), "{error}");
        });
    }
}

#[test]
fn out_of_range_setting_is_rejected_on_all_ranks() {
    let table = Table::new(2);
    with_processes(2, |rank, jobs| {
        let adjust = |config: &mut Config| config.mtu_bytes = (rank == 1).then_some(10);
        let error = jobs.join(&table.seat(rank), adjust).err().unwrap().to_string();
        assert!(error.starts_with("rank 1: mtu_bytes"), "{error}");
    });
}

fn with_key(digit: &str) -> impl Fn(&mut Config) {
    let key = JobKey::from_hex(&digit.repeat(32)).ok();
    move |config| (config.job_key, config.shared_memory) = (key.clone(), false)
}

#[test]
fn configured_key_is_not_replaced_by_an_exchanged_key() {
    let table = Table::new(2);
    with_processes(2, |rank, jobs| {
        let forged = "\"key\":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]";
        let read = if rank == 1 { forged } else { "\"key\":null" };
        let ranks = Forged::new(table.seat(rank), 0, "\"key\":null", read);
        all_hear_rank_0(&jobs.join(&ranks, with_key("7")).unwrap(), 5);
        assert!(ranks.is_forged.into_inner());
        jobs.leave().unwrap();
    });
}

#[test]
fn rank_with_a_different_key_than_rank_0_is_named_before_meeting() {
    for (own, others) in [("7", "8"), ("7", "")] {
        let table = Table::new(3);
        with_processes(3, |rank, jobs| {
            let key = with_key(if rank == 2 { others } else { own });
            let error = jobs.join(&table.seat(rank), key).err().unwrap().to_string();
            assert!(error.starts_with("rank 2: OMNES_JOB_KEY differs from rank 0's"), "{error}");
        });
    }
}

#[test]
fn two_ranks_continue_in_a_job_after_a_third_one_leaves() {
    let (three, two) = (Table::new(3), Table::new(2));
    with_processes(3, |rank, jobs| {
        let comm = jobs.join(&three.seat(rank), by_sockets).unwrap();
        comm.barrier().unwrap();
        if rank == 2 {
            for peer in [0, 1] {
                comm.recv(peer, 8, &mut []).unwrap();
            }
            jobs.abandon();
            let outcome = comm.send(0, 8, &[]);
            return assert!(matches!(outcome, Err(Error::AlreadyLeft)), "{outcome:?}");
        }
        comm.send(2, 8, &[]).unwrap();
        let gone = comm.recv(2, 9, &mut []);
        assert!(matches!(gone, Err(Error::PeerLeft { rank: 2 })), "{gone:?}");
        let pair = jobs.join(&two.seat(rank), |_| panic!("there is a job")).unwrap();
        all_hear_rank_0(&pair, 4);
        // The ranks of the job cannot all meet any more.
        assert!(jobs.leave().is_err());
        let outcome = pair.send(0, 8, &[]);
        assert!(matches!(outcome, Err(Error::AlreadyLeft)), "{outcome:?}");
    });
}

#[test]
fn ranks_can_meet_again_after_finalizing_a_joined_communicator() {
    let table = Table::new(2);
    with_processes(2, |rank, jobs| {
        let first = jobs.join(&table.seat(rank), by_sockets).unwrap();
        all_hear_rank_0(&first, 1);
        first.finalize().unwrap();
        let second = jobs.join(&table.seat(rank), by_sockets).unwrap();
        all_hear_rank_0(&second, 2);
        second.finalize().unwrap();
    });
}
