//! A resource that does one thing after the other: a processor, a DMA engine, a bus, a link.

use super::time::{Span, Time};

/// A serial server: whoever comes while it is busy waits for its turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Server {
    free_at: Time,
    busy: Span,
}

impl Server {
    /// When it has done all that was asked of it.
    pub fn free_at(&self) -> Time {
        self.free_at
    }

    /// How long it has worked, or will have when it is free.
    pub fn busy(&self) -> Span {
        self.busy
    }

    /// When it begins with work that comes at `at`.
    pub fn start(&self, at: Time) -> Time {
        self.free_at.max(at)
    }

    /// It does nothing before `until`.
    pub fn hold(&mut self, until: Time) {
        self.free_at = self.free_at.max(until);
    }

    /// Takes on work of length `span` that comes at `at`; when that is done.
    pub fn serve(&mut self, at: Time, span: Span) -> Time {
        self.free_at = self.start(at) + span;
        self.busy += span;
        self.free_at
    }
}
