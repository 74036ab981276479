//! Ranks as threads of the test, each with an engine of its own, over loopback: by sockets, each as
//! a node of its own, unless a test lets them share memory.

use omnes::{Communicator, Config, WhileWaiting};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A loopback address with a port that is free.
pub fn rendezvous(host: &str) -> String {
    let address: std::net::IpAddr = host.parse().unwrap();
    std::net::SocketAddr::new(address, omnes::free_port(address).unwrap()).to_string()
}

/// Lets the next wait end by `ending`, once `ends` is set.
#[allow(dead_code)] // Few tests interrupt ranks.
pub fn interrupted(ends: &Arc<AtomicBool>, ending: fn() -> ControlFlow<()>) -> WhileWaiting {
    let ends = ends.clone();
    let callback = move || {
        if ends.swap(false, Ordering::Relaxed) { ending() } else { ControlFlow::Continue(()) }
    };
    WhileWaiting::every(Duration::from_millis(1), callback)
}

/// Ends this rank like a crash: without a farewell.
#[allow(dead_code)] // Few tests let ranks crash.
pub fn crash(comm: Communicator) {
    let ended = catch_unwind(AssertUnwindSafe(|| {
        let _held = comm;
        resume_unwind(Box::new(()));
    }));
    assert!(ended.is_err());
}

/// Lets every rank of a job of `size` ranks join and leave; returns the outcomes in order of ranks.
#[allow(dead_code)] // Not all tests have ranks that cannot join.
pub fn try_with_ranks(
    size: u32,
    adjust: impl Fn(&mut Config) + Sync,
) -> Vec<Result<(), omnes::Error>> {
    let address = rendezvous("127.0.0.1");
    let join = |rank| {
        let mut config = Config::new(rank, size, address.as_str());
        config.shared_memory = false;
        adjust(&mut config);
        Communicator::from_config(config).and_then(Communicator::finalize)
    };
    std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..size)
            .map(|rank| {
                scope.spawn({
                    let join = &join;
                    move || join(rank)
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// Runs `body` as every rank of a job of `size` ranks; results in order of ranks.
pub fn with_ranks<T: Send>(
    size: u32,
    adjust: impl Fn(&mut Config) + Sync,
    body: impl Fn(Communicator) -> T + Sync,
) -> Vec<T> {
    with_ranks_at(&rendezvous("127.0.0.1"), size, adjust, body)
}

/// As [`with_ranks`], at the given address.
pub fn with_ranks_at<T: Send>(
    address: &str,
    size: u32,
    adjust: impl Fn(&mut Config) + Sync,
    body: impl Fn(Communicator) -> T + Sync,
) -> Vec<T> {
    std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..size)
            .map(|rank| {
                let (adjust, body) = (&adjust, &body);
                scope.spawn(move || {
                    let mut config = Config::new(rank, size, address);
                    config.join_timeout = Duration::from_secs(20);
                    config.shared_memory = false;
                    adjust(&mut config);
                    body(Communicator::from_config(config).unwrap())
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// Exchanges rows between ranks that are threads.
#[allow(dead_code)] // Not all tests have ranks that exchange.
pub struct Table {
    rows: std::sync::Mutex<Vec<Vec<u8>>>,
    all: std::sync::Barrier,
}

/// A rank's access to the table.
#[allow(dead_code)] // As above.
pub struct Seat<'a> {
    table: &'a Table,
    rank: u32,
}

#[allow(dead_code)] // As above.
impl Table {
    /// For `size` ranks.
    pub fn new(size: usize) -> Self {
        Self { rows: vec![Vec::new(); size].into(), all: std::sync::Barrier::new(size) }
    }

    /// The seat of `rank`.
    pub fn seat(&self, rank: u32) -> Seat<'_> {
        Seat { table: self, rank }
    }
}

impl omnes::Exchange for Seat<'_> {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.table.rows.lock().unwrap().len() as u32
    }

    fn allgather(&self, own: &[u8]) -> Result<Vec<u8>, omnes::Error> {
        self.table.rows.lock().unwrap()[self.rank as usize] = own.to_vec();
        self.table.all.wait();
        let all = self.table.rows.lock().unwrap().concat();
        self.table.all.wait();
        Ok(all)
    }
}
