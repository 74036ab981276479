//! PM: arithmetic on the rates of sections 4 and 5 and on table 2.

use crate::{Finding, Target};

/// Peak rate in MB/s, and message size that reaches half of it, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct RateLaw {
    /// In MB/s, equal to bytes per microsecond.
    pub(super) peak: f64,
    /// In bytes.
    pub(super) half: f64,
}

/// PM and FM, from section 5.
pub(super) const PM: RateLaw = RateLaw { peak: 32.0, half: 300.0 };
pub(super) const FM: RateLaw = RateLaw { peak: 17.0, half: 54.0 };
/// Rate of a link of the first generation, in MB/s.
const LINK: f64 = 80.0;
/// Receivers of the multicast test.
const RECEIVERS: f64 = 8.0;
/// Table 2 in ms: no message, send buffer full, receive buffer full, both.
const SAVE: [f64; 4] = [0.13, 1.88, 3.39, 5.15];
const RESTORE: [f64; 4] = [0.11, 1.40, 1.95, 3.22];
/// Buffers of a channel in bytes, and numbers of messages that fill them.
const SEND_BYTES: f64 = (12 << 10) as f64;
const SEND_MESSAGES: f64 = 511.0;
const RECEIVE_BYTES: f64 = (32 << 10) as f64;
const RECEIVE_MESSAGES: f64 = 2730.0;

impl RateLaw {
    /// Rate for messages of `bytes` bytes, in MB/s.
    pub(super) fn rate(self, bytes: f64) -> f64 {
        self.peak * bytes / (bytes + self.half)
    }

    /// Time of an empty message, in us.
    pub(super) fn overhead_us(self) -> f64 {
        self.half / self.peak
    }

    /// Size above which `self` is faster than `other`, in bytes.
    pub(super) fn overtakes(self, other: Self) -> f64 {
        (other.peak * self.half - self.peak * other.half) / (self.peak - other.peak)
    }
}

/// The finding of a target that is arithmetic.
pub(super) fn find(target: &Target) -> Option<Finding> {
    Some(match target.id.as_str() {
        "PM-F01" => crossover(target),
        "PM-F02" => Finding::judged(target, [PM, FM].map(RateLaw::overhead_us)),
        "PM-F03" => Finding::judged(target, PM.peak / RECEIVERS),
        "PM-F04" => Finding::judged(target, (LINK / RECEIVERS) / (PM.peak / RECEIVERS)),
        "PM-C05" => Finding::judged(target, sum_of_parts(SAVE)),
        "PM-C06" => Finding::judged(target, sum_of_parts(RESTORE)),
        "PM-C08" => {
            let bytes = [SEND_BYTES / SEND_MESSAGES, RECEIVE_BYTES / RECEIVE_MESSAGES];
            Finding::judged(target, bytes)
        }
        "PM-C09" => Finding::judged(target, [SAVE, RESTORE].map(copy_rate)),
        "PM-M06" | "PM-M07" | "PM-M08" | "PM-M04" => {
            Finding::not_computed("a figure of another system, quoted as a baseline")
        }
        _ => return None,
    })
}

fn crossover(target: &Target) -> Finding {
    let bytes = PM.overtakes(FM);
    let (pm, fm) = (PM.rate(400.0), FM.rate(400.0));
    Finding::judged(target, bytes).noting(format!(
        "at 400 bytes, where section 5 sees them equal, the law gives {pm:.1} and {fm:.1} MB/s"
    ))
}

/// The last row of a column of table 2, as the sum of the increments of the other rows over the
/// first.
fn sum_of_parts([empty, send, receive, _]: [f64; 4]) -> f64 {
    empty + (send - empty) + (receive - empty)
}

/// Rate at which both buffers are copied, in MB/s.
fn copy_rate([empty, _, _, both]: [f64; 4]) -> f64 {
    (SEND_BYTES + RECEIVE_BYTES) / ((both - empty) * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_laws_give_the_same_rate_at_the_crossover() {
        let bytes = PM.overtakes(FM);
        assert!((PM.rate(bytes) - FM.rate(bytes)).abs() < 1e-9);
        assert!(PM.rate(bytes + 1.0) > FM.rate(bytes + 1.0));
        assert_eq!(PM.rate(PM.half), PM.peak / 2.0);
    }
}
