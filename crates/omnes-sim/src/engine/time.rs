//! Time in picoseconds: fine enough for a byte on a link of 400 Gbit/s, which takes 20 ps, and for
//! constants such as 0.0301 us per byte; the range allows runs of 200 days.

use omnes_wire::Instant;
use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Mul, Sub};

const PS_PER_NS: u64 = 1_000;

/// A duration.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Span(u64);

impl Span {
    /// The zero duration.
    pub const ZERO: Self = Self(0);

    /// Duration of `ps` picoseconds.
    pub const fn from_ps(ps: u64) -> Self {
        Self(ps)
    }

    /// Duration of `ns` nanoseconds.
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns * PS_PER_NS)
    }

    /// Duration of `ns` nanoseconds, rounded to picoseconds; negative values give zero.
    pub fn from_ns_rounded(ns: f64) -> Self {
        Self((ns * PS_PER_NS as f64).round() as u64)
    }

    /// The duration in picoseconds.
    pub const fn as_ps(self) -> u64 {
        self.0
    }

    /// The duration in microseconds.
    pub fn as_us(self) -> f64 {
        self.0 as f64 / 1e6
    }
}

impl Add for Span {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for Span {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Mul<u64> for Span {
    type Output = Self;

    fn mul(self, times: u64) -> Self {
        Self(self.0 * times)
    }
}

impl Sum for Span {
    fn sum<I: Iterator<Item = Self>>(spans: I) -> Self {
        spans.fold(Self::ZERO, Add::add)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:.3} us", self.as_us())
    }
}

/// A point in time, counted from the start of the run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Time(u64);

impl Time {
    /// The start of the run.
    pub const ZERO: Self = Self(0);

    /// The point `ps` picoseconds after the start.
    pub const fn from_ps(ps: u64) -> Self {
        Self(ps)
    }

    /// Picoseconds since the start.
    pub const fn as_ps(self) -> u64 {
        self.0
    }

    /// The time on the machines' clock, in whole nanoseconds.
    pub const fn instant(self) -> Instant {
        Instant::from_ns(self.0 / PS_PER_NS)
    }

    /// The first point at which the machines' clock shows `instant`.
    pub const fn of(instant: Instant) -> Self {
        Self(instant.as_ns().saturating_mul(PS_PER_NS))
    }

    /// The time since an earlier point; zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Span> for Time {
    type Output = Self;

    fn add(self, span: Span) -> Self {
        Self(self.0 + span.0)
    }
}

impl AddAssign<Span> for Time {
    fn add_assign(&mut self, span: Span) {
        self.0 += span.0;
    }
}

impl Sub for Time {
    type Output = Span;

    fn sub(self, earlier: Self) -> Span {
        self.since(earlier)
    }
}

/// Service time of a resource: a fixed part and a part per byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cost {
    /// Time independent of the length.
    pub fixed: Span,
    /// Time per byte.
    pub per_byte: Span,
}

impl Cost {
    /// The time for `bytes`.
    pub fn of(self, bytes: u64) -> Span {
        self.fixed + self.per_byte * bytes
    }
}
