//! Tolerated deviation of a value.
//!
//! `tolerance_suggestion` of a target is parsed if it has one of five plain forms. Free forms are
//! listed in [`table`], by id, each with the text quoted; if the text names no bound ("report"),
//! the bound is chosen here and marked as ours.

use crate::target::{Target, Value};
use std::fmt;

/// Tolerated deviation of a value, and the form of the value.
///
/// Unless stated otherwise, ours has as many figures as the target, and each is compared.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Tolerance {
    /// The same figures, or the same words.
    Exact,
    /// Each figure deviates by at most this.
    Absolute(f64),
    /// Each figure deviates from the target's by at most this percentage.
    Percent(f64),
    /// Each figure is between the target's divided by this and multiplied by this.
    Factor(f64),
    /// The same order or winner, in the target's words.
    Order,
    /// All our figures, however many, are at least this.
    AtLeast(f64),
    /// All our figures, however many, are at most this.
    AtMost(f64),
    /// All our figures, however many, are above this.
    Above(f64),
    /// All our figures, however many, are below this.
    Below(f64),
    /// All our figures are above this, and each is above the one before.
    AboveAndGrowing(f64),
    /// All our figures lie between the first and the second, inclusive.
    Within(f64, f64),
    /// Our figures, at least two, each above the one before.
    Ascending,
    /// Our figures, at least two, each below the one before.
    Descending,
    /// Our figures, at least two; the largest is at most this percentage above the smallest.
    Flat(f64),
    /// Our figures are deviations in percent, each at most this in either direction.
    Deviations(f64),
    /// One figure of ours, which deviates from the second by at most the first, in percent.
    PercentOf(f64, f64),
}

/// Accounts for the rounding of binary fractions.
const ROUNDING: f64 = 1e-9;

impl Tolerance {
    /// The tolerance of a target.
    ///
    /// # Panics
    /// If the target's text has a free form that is not in `table`, which a test would have found.
    pub fn of(target: &Target) -> Self {
        Self::known(target).expect("every target has a tolerance")
    }

    pub(crate) fn known(target: &Target) -> Option<Self> {
        table(&target.id).or_else(|| plain(&target.tolerance_suggestion))
    }

    /// True if `ours` is close enough to `stated`.
    pub fn holds(self, stated: &Value, ours: &Value) -> bool {
        let numbers = ours.numbers();
        match self {
            Self::Exact | Self::Order if numbers.is_empty() => stated == ours,
            Self::Exact | Self::Order => pairs(stated, ours, |s, o| off(s, o) <= ROUNDING),
            Self::Absolute(most) => pairs(stated, ours, |s, o| (o - s).abs() <= most + ROUNDING),
            Self::Percent(most) => pairs(stated, ours, |s, o| 100.0 * off(s, o) <= most + ROUNDING),
            Self::Factor(most) => pairs(stated, ours, |s, o| o <= s * most && o >= s / most),
            Self::AtLeast(least) => all(numbers, |o| o >= least),
            Self::AtMost(most) => all(numbers, |o| o <= most),
            Self::Above(bound) => all(numbers, |o| o > bound),
            Self::Below(bound) => all(numbers, |o| o < bound),
            Self::AboveAndGrowing(bound) => {
                all(numbers, |o| o > bound) && numbers.windows(2).all(|two| two[0] < two[1])
            }
            Self::Within(low, high) => {
                all(numbers, |o| o >= low - ROUNDING && o <= high + ROUNDING)
            }
            Self::Ascending => steps(numbers, |before, after| before < after),
            Self::Descending => steps(numbers, |before, after| before > after),
            Self::Flat(most) => numbers.len() > 1 && spread_percent(numbers) <= most,
            Self::Deviations(most) => all(numbers, |o| o.abs() <= most),
            Self::PercentOf(most, of) => {
                numbers.len() == 1 && all(numbers, |o| 100.0 * off(of, o) <= most)
            }
        }
    }

    /// Lowest and highest value close enough to `stated`; `stated` itself if the tolerance gives no
    /// such range.
    pub fn bar(self, stated: f64) -> (f64, f64) {
        match self {
            Self::Absolute(most) => (stated - most, stated + most),
            Self::Percent(most) => (stated * (1.0 - most / 100.0), stated * (1.0 + most / 100.0)),
            Self::Factor(most) => (stated / most, stated * most),
            Self::AtLeast(bound) | Self::Above(bound) | Self::AboveAndGrowing(bound) => {
                (bound.min(stated), stated)
            }
            Self::AtMost(bound) | Self::Below(bound) => (stated, bound.max(stated)),
            Self::Within(low, high) => (low, high),
            _ => (stated, stated),
        }
    }
}

/// Parses the plain forms: `exact`, `abs 0.1`, `10 %`, `factor 2`, `order only`.
fn plain(text: &str) -> Option<Tolerance> {
    match text {
        "exact" => return Some(Tolerance::Exact),
        "order only" => return Some(Tolerance::Order),
        _ => {}
    }
    if let Some(bound) = text.strip_prefix("abs ") {
        return bound.parse().ok().map(Tolerance::Absolute);
    }
    if let Some(bound) = text.strip_prefix("factor ") {
        return bound.parse().ok().map(Tolerance::Factor);
    }
    text.strip_suffix(" %")?.parse().ok().map(Tolerance::Percent)
}

/// Tolerances of free forms.
fn table(id: &str) -> Option<Tolerance> {
    multisend(id)
        .or_else(|| broadcast(id))
        .or_else(|| pm(id))
        .or_else(|| barrier(id))
        .or_else(|| itb(id))
}

fn multisend(id: &str) -> Option<Tolerance> {
    Some(match id {
        // "range": both ends of ours, to the three digits that are given.
        "MS-F30" => Tolerance::Within(1.979 - 0.0005, 2.609 + 0.0005),
        // "10 % in the calibrated emulator".
        "MS-M01" => Tolerance::Percent(10.0),
        // "factor 2 in the emulator".
        "MS-M02" => Tolerance::Factor(2.0),
        // "25 % (see MS-F30)".
        "MS-M04" => Tolerance::Percent(25.0),
        // 5 % of a gain of zero: ours is the gain as a fraction of 1.
        "MS-M08" => Tolerance::Absolute(0.05),
        // "sign only": ours are the speedups at 2048 and at 1536 bytes.
        "MS-M09" => Tolerance::Ascending,
        // "sign only" against 1.
        "MS-M10" => Tolerance::Above(1.0),
        "MS-M11" => Tolerance::Below(1.0),
        // "upper bound".
        "MS-M13" => Tolerance::AtMost(500.0),
        // "order of magnitude".
        "MS-M14" => Tolerance::Factor(10.0),
        _ => return None,
    })
}

fn broadcast(id: &str) -> Option<Tolerance> {
    Some(match id {
        // "> 0 and growing with n": ours are gains in percent with an increasing number of nodes.
        "BC-M01" => Tolerance::AboveAndGrowing(0.0),
        // ">= 50 % gain" and so on.
        "BC-M02" => Tolerance::AtLeast(50.0),
        "BC-M03" => Tolerance::AtLeast(100.0),
        "BC-M04" => Tolerance::AtLeast(40.0),
        "BC-M06" => Tolerance::AtLeast(5.0),
        // "within noise (10 %)": ours are the times at several skews.
        "BC-M07" => Tolerance::Flat(10.0),
        // "report": names no bound; a factor of 2 is ours.
        "BC-M08" => Tolerance::Factor(2.0),
        // "15 % apart from BC-M08": ours are the latencies of the designs.
        "BC-M09" => Tolerance::Flat(15.0),
        // "10 %" of being flat: ours are the latencies with 1 to 7 receivers.
        "BC-M11" => Tolerance::Flat(10.0),
        // "monotone": ours are the latencies with an increasing number of nodes.
        "BC-M12" => Tolerance::Ascending,
        // "15 % per size": ours are the model's deviations.
        "BC-M13" => Tolerance::Deviations(15.0),
        // "exact for T_um/T_pack in [4, 8]".
        "BC-F07" => Tolerance::Exact,
        // 1 %: ours is the largest deviation of the formula.
        "BC-F09" => Tolerance::Deviations(1.0),
        // "10 % once the T parameters are fitted at n = 8".
        "BC-F10" => Tolerance::Percent(10.0),
        // "as BC-F10": a tenth of the ratio, whichever way it is printed.
        "BC-F11" => Tolerance::Absolute(0.486),
        // 5 % of 1/M: ours is for M = 10.
        "BC-S02" => Tolerance::PercentOf(5.0, 0.1),
        _ => return None,
    })
}

fn pm(id: &str) -> Option<Tolerance> {
    Some(match id {
        // "report": names no bound; 10 % is ours.
        "PM-M01" | "PM-M02" => Tolerance::Percent(10.0),
        // "report", and of other systems: a factor of 2 is ours.
        "PM-M04" | "PM-M06" | "PM-M07" | "PM-M08" => Tolerance::Factor(2.0),
        // "emulator 20 %" and "20 % in emulator".
        "PM-M03" | "PM-C01a" | "PM-C01b" | "PM-C02a" | "PM-C02b" | "PM-C03a" | "PM-C03b"
        | "PM-C04a" | "PM-C04b" => Tolerance::Percent(20.0),
        // "abs 0.02 of 5.15", "abs 0.03 of 3.22".
        "PM-C05" => Tolerance::Within(5.13, 5.17),
        "PM-C06" => Tolerance::Within(3.19, 3.25),
        // "all > 1".
        "PM-C07" => Tolerance::Above(1.0),
        // "sign only": ours is the ratio of the time, or of the rate, with to without, at one or
        // more sizes.
        "PM-M10" => Tolerance::Below(1.0),
        "PM-M11" | "PM-M12" => Tolerance::Above(1.0),
        _ => return None,
    })
}

fn barrier(id: &str) -> Option<Tolerance> {
    Some(match id {
        // "emulator 15 %".
        "CB-M01" | "CB-M02" | "CB-M03" => Tolerance::Percent(15.0),
        // These compare the slides' model with a later paper; 2 % is ours.
        "CB-X01" | "CB-X02" | "CB-X03" => Tolerance::Percent(2.0),
        _ => return None,
    })
}

fn itb(id: &str) -> Option<Tolerance> {
    Some(match id {
        // "upper bound 2x in emulator".
        "IT-M01" => Tolerance::AtMost(250.0),
        // "upper bound".
        "IT-M02" => Tolerance::AtMost(300.0),
        // "monotone decreasing", with the size of the message.
        "IT-M03" | "IT-M05" => Tolerance::Descending,
        // "20 % in emulator".
        "IT-M04" => Tolerance::Percent(20.0),
        // ">= 1.5 at 32 or more switches".
        "IT-M06" => Tolerance::AtLeast(1.5),
        // "report": names no bound; a factor of 2 is ours.
        "IT-M07" => Tolerance::Factor(2.0),
        _ => return None,
    })
}

fn all(numbers: &[f64], holds: impl Fn(f64) -> bool) -> bool {
    !numbers.is_empty() && numbers.iter().all(|number| holds(*number))
}

fn steps(numbers: &[f64], holds: impl Fn(f64, f64) -> bool) -> bool {
    numbers.len() > 1 && numbers.windows(2).all(|two| holds(two[0], two[1]))
}

/// Compares each of our figures with the target's; their numbers must be equal.
fn pairs(stated: &Value, ours: &Value, holds: impl Fn(f64, f64) -> bool) -> bool {
    let (stated, ours) = (stated.numbers(), ours.numbers());
    !ours.is_empty()
        && stated.len() == ours.len()
        && stated.iter().zip(ours).all(|(stated, ours)| holds(*stated, *ours))
}

/// Relative deviation from the stated value; absolute if that is 0.
fn off(stated: f64, ours: f64) -> f64 {
    (ours - stated).abs() / if stated == 0.0 { 1.0 } else { stated.abs() }
}

fn spread_percent(numbers: &[f64]) -> f64 {
    let least = numbers.iter().copied().fold(f64::INFINITY, f64::min);
    let most = numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    100.0 * (most / least - 1.0)
}

impl fmt::Display for Tolerance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Exact => "exact".to_owned(),
            Self::Absolute(most) => format!("± {most}"),
            Self::Percent(most) => format!("± {most} %"),
            Self::Factor(most) => format!("factor {most}"),
            Self::Order => "order".to_owned(),
            Self::AtLeast(least) => format!("≥ {least}"),
            Self::AtMost(most) => format!("≤ {most}"),
            Self::Above(bound) => format!("> {bound}"),
            Self::Below(bound) => format!("< {bound}"),
            Self::AboveAndGrowing(bound) => format!("> {bound}, growing"),
            Self::Within(low, high) => format!("{low} to {high}"),
            Self::Ascending => "ascending".to_owned(),
            Self::Descending => "descending".to_owned(),
            Self::Flat(most) => format!("flat within {most} %"),
            Self::Deviations(most) => format!("off by ≤ {most} %"),
            Self::PercentOf(most, of) => format!("{of} ± {most} %"),
        };
        f.pad(&text)
    }
}
