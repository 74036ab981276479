//! The preload library's report of a communicator (`OMNES_MPI_REPORT=on`).

use std::collections::BTreeMap;

/// Calls of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Calls {
    /// Number of calls that Omnes handled.
    pub taken: u64,
    /// Number of calls that the communicator's rank 0 made.
    pub all: u64,
}

impl Calls {
    /// Reads `3 of 5 reduces` or `3 of 5 reduces (24 bytes)`.
    fn read(text: &str) -> (&str, Self) {
        let [taken, "of", all, kind, ..] = *text.split(' ').collect::<Vec<_>>() else {
            panic!("no calls: {text}");
        };
        (kind, Self { taken: taken.parse().unwrap(), all: all.parse().unwrap() })
    }

    /// True if there were calls, and Omnes handled none of them.
    pub fn are_passed(self) -> bool {
        self.all > 0 && self.taken == 0
    }

    /// True if there were calls, and Omnes handled all of them.
    pub fn are_taken(self) -> bool {
        self.all > 0 && self.taken == self.all
    }
}

/// One line of the report.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// Name of the communicator.
    pub name: String,
    /// Size of the communicator.
    pub ranks: u32,
    /// Broadcasts, blocking and nonblocking.
    pub bcasts: Calls,
    /// Barriers, blocking and nonblocking.
    pub barriers: Calls,
    /// Reductions at all ranks, blocking and nonblocking, as for all fields below.
    pub allreduces: Calls,
    /// Reductions at one rank.
    pub reduces: Calls,
    /// Gathers at all ranks.
    pub allgathers: Calls,
    /// Gathers at one rank.
    pub gathers: Calls,
    /// Scatters of parts from one rank.
    pub scatters: Calls,
    /// Parts from each rank to each.
    pub alltoalls: Calls,
    /// Reductions whose result is divided into a block per rank.
    pub reduce_scatters: Calls,
    /// Inclusive and exclusive prefix reductions.
    pub scans: Calls,
    /// Reason why calls were passed; empty if the ranks are connected.
    pub reason: String,
}

impl Line {
    /// Reads all lines of the report in `errors`, except the line shared by small communicators.
    pub fn read_all(errors: &str) -> Vec<Self> {
        let lines = errors.lines().filter_map(|line| line.strip_prefix("omnes-mpi: "));
        lines.filter(|line| !Self::is_of_small(line)).map(Self::read).collect()
    }

    /// True for the line of communicators that were not worth connecting.
    pub fn is_of_small(line: &str) -> bool {
        line.contains(" communicators of one rank or of fewer than ")
    }

    /// Reads `NAME, 4 ranks: taken 8 of 9 broadcasts (37 bytes), 4 of 4 barriers; passed: REASON`,
    /// with all kinds of calls that were made.
    fn read(line: &str) -> Self {
        let (line, reason) = line.split_once("; passed: ").unwrap_or((line, ""));
        let (head, calls) = line.split_once(" ranks: taken ").unwrap();
        let (name, ranks) = head.rsplit_once(", ").unwrap();
        let mut kinds: BTreeMap<&str, Calls> = calls.split(", ").map(Calls::read).collect();
        let mut calls = |kind| kinds.remove(kind).unwrap_or_default();
        let line = Self {
            name: name.to_owned(),
            ranks: ranks.parse().unwrap(),
            bcasts: calls("broadcasts"),
            barriers: calls("barriers"),
            allreduces: calls("allreduces"),
            reduces: calls("reduces"),
            allgathers: calls("allgathers"),
            gathers: calls("gathers"),
            scatters: calls("scatters"),
            alltoalls: calls("alltoalls"),
            reduce_scatters: calls("reduce_scatters"),
            scans: calls("scans"),
            reason: reason.to_owned(),
        };
        assert!(kinds.is_empty(), "not known: {kinds:?}");
        line
    }
}
