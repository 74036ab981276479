//! What the preload library says of a communicator (`OMNES_MPI_REPORT=on`).

/// Calls of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Calls {
    /// Of all, those that Omnes did.
    pub taken: u64,
    /// All that the communicator's rank 0 made.
    pub all: u64,
}

impl Calls {
    /// Reads `3 of 5`.
    fn read(text: &str) -> Self {
        let (taken, all) = text.split_once(" of ").unwrap();
        Self { taken: taken.parse().unwrap(), all: all.parse().unwrap() }
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
    /// Reductions at all ranks.
    pub allreduces: Calls,
    /// Why calls were passed; empty where the communicator is taken.
    pub reason: String,
}

impl Line {
    /// All of what ranks wrote to stderr.
    pub fn read_all(errors: &str) -> Vec<Self> {
        errors.lines().filter_map(|line| line.strip_prefix("omnes-mpi: ")).map(Self::read).collect()
    }

    /// Reads `NAME, 4 ranks: 8 of 9 broadcasts taken (37 bytes), 4 of 4 barriers, 1 of 2
    /// allreduces; passed: REASON`.
    fn read(line: &str) -> Self {
        let (line, reason) = line.split_once("; passed: ").unwrap_or((line, ""));
        let (head, calls) = line.split_once(" ranks: ").unwrap();
        let (name, ranks) = head.rsplit_once(", ").unwrap();
        let (bcasts, rest) = calls.split_once(" broadcasts taken (").unwrap();
        let (_, rest) = rest.split_once(" bytes), ").unwrap();
        let (barriers, allreduces) = rest.split_once(" barriers, ").unwrap();
        Self {
            name: name.to_owned(),
            ranks: ranks.parse().unwrap(),
            bcasts: Calls::read(bcasts),
            barriers: Calls::read(barriers),
            allreduces: Calls::read(allreduces.strip_suffix(" allreduces").unwrap()),
            reason: reason.to_owned(),
        }
    }
}
