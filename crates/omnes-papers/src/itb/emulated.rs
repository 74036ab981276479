//! In-transit buffers: latency and throughput of the wormhole model.
//!
//! Two constants of `omnes_sim::wormhole::latency` are calibrated, at the shortest message: with
//! the first values of IT-M03 and IT-M05. All other values are validation, except that IT-M04
//! states for longer messages what IT-M05 states for the shortest. Throughput depends on no fitted
//! constant.
//! Cost: seconds for throughput, which is simulated once.

use super::structure::judged;
use crate::{Figure, Finding, Mark, Scale, Series, Target};
use omnes_sim::wormhole::latency::{self, Sample};
use omnes_sim::wormhole::studies::{self, Throughput};
use omnes_sim::wormhole::{Interface, Scheme, saturation};
use omnes_topo::network::NetworkError;
use std::sync::OnceLock;

/// Targets to which constants were fitted, or that depend on such targets.
pub(super) const FITTED: [&str; 3] = ["IT-M03", "IT-M04", "IT-M05"];

/// The finding of a target that is simulated.
pub(super) fn find(target: &Target) -> Option<Finding> {
    let first = "the first value is a calibration point, the second is not";
    Some(match target.id.as_str() {
        "IT-M01" => judged(target, studies::check_ns()),
        "IT-M02" => judged(target, studies::check_ns_max()),
        "IT-M03" => judged(target, studies::check_percent())
            .noting("the 12.5 us that 125 ns at 1 % imply are a calibration point"),
        "IT-M04" => judged(target, studies::stop_us())
            .noting("mean over lengths; the shortest message is a calibration point"),
        "IT-M05" => judged(target, studies::stop_percent()).noting(first),
        "IT-M06" => judged(target, throughput().map(Throughput::large_ratio)).noting(
            "mean of networks of 32 and 64 switches, with the paper's earlier costs of 475 ns",
        ),
        "IT-M07" => judged(target, throughput().map(Throughput::best_ratio)),
        _ => return None,
    })
}

/// Both routings on random networks, simulated once.
fn throughput() -> Result<&'static Throughput, NetworkError> {
    static THROUGHPUT: OnceLock<Result<Throughput, NetworkError>> = OnceLock::new();
    let found = THROUGHPUT.get_or_init(|| studies::throughput(Interface::ESTIMATED));
    found.as_ref().map_err(Clone::clone)
}

/// Curves of the simulations, with the points that the paper states.
pub(super) fn figures() -> Vec<Figure> {
    let costs = [
        ("Cost of the check on ordinary packets", latency::check_costs(), "IT-M03"),
        ("Cost of one in-transit buffer", latency::transit_costs(), "IT-M05"),
    ];
    let costs = costs
        .into_iter()
        .filter_map(|(title, samples, id)| Some(relative_cost(title, &samples.ok()?, id)));
    costs.chain(ratios()).chain(saturation_curves(32)).collect()
}

/// A cost as a percentage of the latency, over the length of the message.
fn relative_cost(title: &str, samples: &[Sample], id: &str) -> Figure {
    let points = samples.iter().map(|sample| (f64::from(sample.bytes), sample.percent()));
    let stated = Target::find(id).map_or(&[][..], |target| target.value.numbers());
    let ends = [1.0, f64::from(latency::MESSAGE_BYTES_MAX)];
    let mark = |(y, x): (&f64, f64)| Mark { id: id.to_owned(), x, y: *y, bar: (*y, *y) };
    Figure {
        title: format!("{title}, in percent of the half round trip"),
        x: ("message, bytes".to_owned(), Scale::Logarithmic),
        y: ("percent".to_owned(), Scale::Linear),
        series: vec![Series::solid("simulated", points.collect())],
        stated: stated.iter().zip(ends).map(mark).collect(),
    }
}

/// Ratios of in-transit buffers to up*/down*: throughput, and load of the busiest link.
fn ratios() -> Option<Figure> {
    let (throughput, busiest) = (throughput().ok()?, studies::bottleneck_ratios().ok()?);
    let sizes = studies::SIZES;
    let of = |size: u32| (f64::from(size), throughput.mean_ratio(size));
    let counted = sizes.into_iter().map(f64::from).zip(busiest).collect();
    Some(Figure {
        title: "Minimal routes with in-transit buffers over up*/down*".to_owned(),
        x: ("switches".to_owned(), Scale::Logarithmic),
        y: ("ratio".to_owned(), Scale::Linear),
        series: vec![
            Series::solid("throughput at saturation", sizes.into_iter().map(of).collect()),
            Series::dashed("paths over the busiest link, counted", counted),
        ],
        stated: vec![Mark::of("IT-M06", 32.0), Mark::of("IT-M07", 64.0)],
    })
}

/// Delivered load over offered load, for one random network.
fn saturation_curves(switches: u32) -> Option<Figure> {
    let points = |scheme| {
        let mut curve = saturation::curve(switches, 0, scheme, Interface::ESTIMATED).ok()?;
        curve.sort_by(|one, other| one.offered.total_cmp(&other.offered));
        Some(curve.iter().map(|at| (at.offered, at.accepted)).collect())
    };
    Some(Figure {
        title: format!("Delivery over load, {switches} switches, 512-byte packets"),
        x: ("offered, bytes per microsecond and switch".to_owned(), Scale::Linear),
        y: ("delivered".to_owned(), Scale::Linear),
        series: vec![
            Series::solid("in-transit buffers", points(Scheme::InTransit)?),
            Series::dashed("up*/down*", points(Scheme::UpDown)?),
        ],
        stated: Vec::new(),
    })
}
