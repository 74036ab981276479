//! A resource that does one task after the other: a processor, a DMA engine, a bus, a link.

use super::time::{Span, Time};

/// A serial server: a task that arrives while the server is busy waits for its turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Server {
    free_at: Time,
    busy: Span,
}

impl Server {
    /// Time at which the server has finished all accepted tasks.
    pub fn free_at(&self) -> Time {
        self.free_at
    }

    /// Total time of all accepted tasks, including the unfinished ones.
    pub fn busy(&self) -> Span {
        self.busy
    }

    /// Time at which the server starts a task that arrives at `at`.
    pub fn start(&self, at: Time) -> Time {
        self.free_at.max(at)
    }

    /// Starts no further task before `until`.
    pub fn hold(&mut self, until: Time) {
        self.free_at = self.free_at.max(until);
    }

    /// Accepts a task of length `span` that arrives at `at`; returns the time at which it is
    /// finished.
    pub fn serve(&mut self, at: Time, span: Span) -> Time {
        self.free_at = self.start(at) + span;
        self.busy += span;
        self.free_at
    }
}
