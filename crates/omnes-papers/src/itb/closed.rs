//! In-transit buffers: arithmetic on the figures of sections 2 and 5.

use crate::{Finding, Target};

/// Measured cost of an in-transit buffer, in us.
const COST_US: f64 = 1.3;
/// That cost as a fraction of the latency: short, then long messages.
const PARTS: [f64; 2] = [0.10, 0.03];
/// Earlier assumptions: detection and DMA set-up, in ns and in bytes on the link.
const DETECT_NS: f64 = 275.0;
const DETECT_BYTES: f64 = 44.0;
const SET_UP_NS: f64 = 200.0;
const SET_UP_BYTES: f64 = 32.0;

/// The finding of a target that is arithmetic.
pub(super) fn find(target: &Target) -> Option<Finding> {
    Some(match target.id.as_str() {
        "IT-F01" => Finding::judged(target, PARTS.map(|part| COST_US / part)),
        "IT-F02" => {
            let rate = |bytes: f64, ns: f64| 1e3 * bytes / ns;
            let rates = [rate(DETECT_BYTES, DETECT_NS), rate(SET_UP_BYTES, SET_UP_NS)];
            Finding::judged(target, rates)
        }
        "IT-F03" => Finding::judged(target, DETECT_NS + SET_UP_NS),
        "IT-F04" => Finding::judged(target, COST_US * 1e3 / (DETECT_NS + SET_UP_NS)),
        _ => return None,
    })
}
