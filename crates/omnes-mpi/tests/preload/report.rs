//! What the preload library says of a communicator (`OMNES_MPI_REPORT=on`).

use std::collections::BTreeMap;

/// Calls of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Calls {
    /// Of all, those that Omnes did.
    pub taken: u64,
    /// All that the communicator's rank 0 made.
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

    /// True if there were calls, and Omnes did none of them.
    pub fn are_passed(self) -> bool {
        self.all > 0 && self.taken == 0
    }

    /// True if there were calls, and Omnes did them all.
    pub fn are_taken(self) -> bool {
        self.all > 0 && self.taken == self.all
    }
}

/// One line of the report.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// The communicator's.
    pub name: String,
    /// Its size.
    pub ranks: u32,
    /// Broadcasts of either kind.
    pub bcasts: Calls,
    /// Barriers of either kind.
    pub barriers: Calls,
    /// Reductions at all ranks, of either kind, as all below.
    pub allreduces: Calls,
    /// Reductions at one.
    pub reduces: Calls,
    /// Gathers at all ranks.
    pub allgathers: Calls,
    /// Gathers at one.
    pub gathers: Calls,
    /// Parts that come from one rank.
    pub scatters: Calls,
    /// Parts from each rank for each.
    pub alltoalls: Calls,
    /// Reductions of which each rank gets a block.
    pub reduce_scatters: Calls,
    /// Reductions up to each rank, and before it.
    pub scans: Calls,
    /// Why calls were passed; empty where the communicator is taken.
    pub reason: String,
}

impl Line {
    /// All of what ranks wrote to stderr, but for those that share a line.
    pub fn read_all(errors: &str) -> Vec<Self> {
        let lines = errors.lines().filter_map(|line| line.strip_prefix("omnes-mpi: "));
        lines.filter(|line| !Self::is_of_small(line)).map(Self::read).collect()
    }

    /// True of the line of communicators that were not worth connecting.
    pub fn is_of_small(line: &str) -> bool {
        line.contains(" communicators of one rank or of fewer than ")
    }

    /// Reads `NAME, 4 ranks: taken 8 of 9 broadcasts (37 bytes), 4 of 4 barriers; passed: REASON`,
    /// with all kinds that were called.
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
