//! Broadcast over multicast: the models of section 7.
//!
//! The paper gives no times, so the formulas are compared by their coefficients, which are
//! determined by probing our functions with one time at a time.

use crate::{Finding, Target};

/// Times of the model; all in one unit.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Times {
    /// Copying a message to or from a slot.
    pub(super) copy: f64,
    /// Posting a multicast.
    pub(super) post: f64,
    /// Latency of a multicast to the farthest node.
    pub(super) multicast: f64,
    /// Latency of a point-to-point message.
    pub(super) point_to_point: f64,
    /// Starting a point-to-point message.
    pub(super) unicast: f64,
    /// Handling an acknowledgement.
    pub(super) acknowledgement: f64,
}

/// A group and its division into subgroups.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Group {
    /// Number of nodes.
    pub(super) nodes: f64,
    /// Number of nodes of a subgroup, its collector included.
    pub(super) subgroup: f64,
}

/// Nodes of the testbed; [`MODELLED_NODES`] are those of the model.
const MEASURED_NODES: f64 = 8.0;
const MODELLED_NODES: f64 = 1024.0;
/// Old over new latency at 8 nodes, from the gain of 58 % (BC-M01).
const MEASURED_RATIO: f64 = 1.58;
/// Old over new latency at 1024 nodes as section 7.1 prints it (BC-F10).
const MODELLED_RATIO: f64 = 4.86;
/// Size of a slot; [`SLOT_OVERHEAD_BYTES`] of it are not payload [BC-R6].
const SLOT_BYTES: u32 = 2048;
const SLOT_OVERHEAD_BYTES: u32 = 212;

impl Times {
    /// Latency of the binomial tree.
    pub(super) fn original(&self, group: Group) -> f64 {
        self.point_to_point * group.nodes.log2()
    }

    /// Latency of a multicast from a single root.
    pub(super) fn single_root(&self, _group: Group) -> f64 {
        2.0 * self.copy + self.post + self.multicast
    }

    /// Time at which the last co-root has the reliable copy.
    pub(super) fn reliable(&self, group: Group) -> f64 {
        2.0 * self.copy + self.post + self.point_to_point * group.collectors().log2()
    }

    /// Time at which the last co-root has the first of its two copies [BC-R11].
    pub(super) fn co_root(&self, group: Group) -> f64 {
        self.reliable(group).min(self.single_root(group))
    }

    /// Time at which all nodes have the message.
    pub(super) fn whole(&self, group: Group) -> f64 {
        self.single_root(group).max(self.co_root(group))
    }

    /// The root's work per broadcast in a sequence of broadcasts.
    pub(super) fn root_busy(&self, group: Group) -> f64 {
        let copies = self.unicast * group.collectors().log2();
        self.copy + self.post + copies + self.acknowledgement * group.subgroup
    }
}

impl Group {
    fn collectors(self) -> f64 {
        self.nodes / self.subgroup
    }
}

/// The finding of a target that is a formula.
pub(super) fn find(target: &Target) -> Option<Finding> {
    Some(match target.id.as_str() {
        "BC-F01" => Finding::judged(target, formula(Times::original)),
        "BC-F02" => Finding::judged(target, formula(Times::single_root)),
        "BC-F03" => Finding::judged(target, formula(Times::reliable)),
        "BC-F04" => Finding::seen(target, first_copy_counts()),
        "BC-F05" => Finding::seen(target, co_roots_do_not_matter()),
        "BC-F06" => Finding::judged(target, formula(Times::root_busy)),
        "BC-F07" => Finding::judged(target, best_collectors(MODELLED_NODES, 6.0))
            .noting("with T_um/T_pack = 6; the paper gives neither"),
        "BC-F08" => Finding::judged(target, ratios_for(8.0)),
        "BC-F09" => Finding::judged(target, worst_deviation_percent())
            .noting("largest deviation of the least found by search, 8 to 65,536 nodes"),
        "BC-F10" => Finding::judged(target, ratio_at_1024())
            .noting("T_pp and T_sr from 1.58 at 8 nodes, T_sr the same at 1024"),
        "BC-F11" => Finding::judged(target, ratio_at_1024() - 1.0)
            .noting("as BC-F10, less one: \"3.86 times better\" and \"4.86 times\" are one figure"),
        "BC-D01" => Finding::judged(target, implied_growth()),
        "BC-P01" => Finding::judged(target, f64::from(SLOT_BYTES - SLOT_OVERHEAD_BYTES)),
        _ => return None,
    })
}

/// Powers of two, with all divisions into powers of two.
fn groups() -> impl Iterator<Item = Group> {
    let group = |nodes: i32, subgroup: i32| Group {
        nodes: f64::from(nodes).exp2(),
        subgroup: f64::from(subgroup).exp2(),
    };
    (0..=16).flat_map(move |nodes| (0..=nodes).map(move |subgroup| group(nodes, subgroup)))
}

/// A function of times and group.
type Model = fn(&Times, Group) -> f64;
/// One of the times, with its name in the paper.
type Probe = (&'static str, Times);
/// A factor of a time, with its name.
type Factor = (&'static str, fn(Group) -> f64);

fn probes() -> [Probe; 6] {
    let none = Times::default();
    [
        ("Tcc", Times { copy: 1.0, ..none }),
        ("Tud", Times { post: 1.0, ..none }),
        ("Tmc", Times { multicast: 1.0, ..none }),
        ("Tpp", Times { point_to_point: 1.0, ..none }),
        ("Tum", Times { unicast: 1.0, ..none }),
        ("Tpack", Times { acknowledgement: 1.0, ..none }),
    ]
}

const FACTORS: [Factor; 6] = [
    ("0", |_| 0.0),
    ("1", |_| 1.0),
    ("2", |_| 2.0),
    ("log2(n)", |group| group.nodes.log2()),
    ("log2(n/s)", |group| (group.nodes / group.subgroup).log2()),
    ("s", |group| group.subgroup),
];

/// The formula that a function computes, in the paper's notation.
fn formula(model: Model) -> String {
    let terms = probes().into_iter().filter_map(|(name, times)| {
        let fits = |factor: &&Factor| groups().all(|group| model(&times, group) == factor.1(group));
        match FACTORS.iter().find(fits).map(|factor| factor.0) {
            Some("0") => None,
            Some("1") => Some(name.to_owned()),
            Some("2") => Some(format!("2*{name}")),
            Some(factor) => Some(format!("{name}*{factor}")),
            None => Some(format!("{name}*?")),
        }
    });
    terms.collect::<Vec<_>>().join("+")
}

/// Times in many proportions.
fn some_times() -> impl Iterator<Item = Times> {
    let steps = [0.5, 2.0, 8.0, 32.0];
    steps.into_iter().flat_map(move |copy| {
        steps.into_iter().flat_map(move |multicast| {
            steps.into_iter().map(move |point_to_point| Times {
                copy,
                post: 1.0,
                multicast,
                point_to_point,
                ..Times::default()
            })
        })
    })
}

/// Checks that a co-root is done with whichever copy arrives first, and that either may be first.
fn first_copy_counts() -> Result<(), String> {
    let mut firsts = [false; 2];
    for times in some_times() {
        for group in groups() {
            let copies = [times.reliable(group), times.single_root(group)];
            let done = times.co_root(group);
            if copies.iter().any(|copy| *copy < done) || !copies.contains(&done) {
                return Err(format!("{done} of {copies:?}"));
            }
            firsts = [firsts[0] || copies[0] < copies[1], firsts[1] || copies[1] < copies[0]];
        }
    }
    if firsts == [true; 2] { Ok(()) } else { Err("one copy is always first".to_owned()) }
}

/// Checks that the total time is that of a multicast, however many co-roots there are.
fn co_roots_do_not_matter() -> Result<(), String> {
    for times in some_times() {
        for group in groups() {
            let (whole, single) = (times.whole(group), times.single_root(group));
            if whole != single {
                return Err(format!("{whole}, not {single}, with {group:?}"));
            }
        }
    }
    Ok(())
}

/// The root's work with `T_um / T_pack = ratio`, without the terms that do not depend on the
/// division.
fn busy(nodes: f64, subgroup: f64, ratio: f64) -> f64 {
    let times = Times { unicast: ratio, acknowledgement: 1.0, ..Times::default() };
    times.root_busy(Group { nodes, subgroup })
}

/// The number of collectors, a power of two, that minimizes the root's work.
fn best_collectors(nodes: f64, ratio: f64) -> f64 {
    let subgroups = (0..).map(|power| f64::from(power).exp2()).take_while(|s| *s <= nodes);
    let best = subgroups
        .map(|subgroup| (busy(nodes, subgroup, ratio), subgroup))
        .reduce(|best, next| if next.0 < best.0 { next } else { best });
    nodes / best.map_or(1.0, |best| best.1)
}

/// The smallest and largest `T_um / T_pack` for which subgroups of this size are the best.
fn ratios_for(subgroup: f64) -> [f64; 2] {
    let prefers =
        |ratio, other| busy(MODELLED_NODES, subgroup, ratio) <= busy(MODELLED_NODES, other, ratio);
    // A larger ratio favours larger subgroups.
    let least = bisect(|ratio| prefers(ratio, subgroup / 2.0));
    let most = bisect(|ratio| !prefers(ratio, subgroup * 2.0));
    [least, most]
}

/// Value up to 100 at which a condition begins to hold.
fn bisect(holds: impl Fn(f64) -> bool) -> f64 {
    let (mut below, mut above) = (0.0, 100.0);
    for _ in 0..60 {
        let middle = (below + above) / 2.0;
        if holds(middle) { above = middle } else { below = middle }
    }
    above
}

/// Largest deviation of `T_um / (T_pack ln 2)` from the best size of subgroups, in percent.
fn worst_deviation_percent() -> f64 {
    let cases = [2.0, 3.7, 5.545, 8.0].into_iter().flat_map(|ratio| {
        [6, 10, 16].into_iter().map(move |power: i32| (ratio, f64::from(power).exp2()))
    });
    cases
        .map(|(ratio, nodes)| {
            let formula = ratio / std::f64::consts::LN_2;
            100.0 * (best_subgroup(nodes, ratio) / formula - 1.0).abs()
        })
        .fold(0.0, f64::max)
}

/// The size of subgroups, not necessarily an integer, that minimizes the root's work, by search.
fn best_subgroup(nodes: f64, ratio: f64) -> f64 {
    let (mut low, mut high) = (1.0, nodes);
    for _ in 0..200 {
        let third = (high - low) / 3.0;
        let (left, right) = (low + third, high - third);
        if busy(nodes, left, ratio) < busy(nodes, right, ratio) { high = right } else { low = left }
    }
    (low + high) / 2.0
}

/// Old over new latency at 1024 nodes, with times for which it is 1.58 at 8 nodes.
fn ratio_at_1024() -> f64 {
    let group = |nodes| Group { nodes, subgroup: 1.0 };
    let times = Times { point_to_point: 1.0, ..Times::default() };
    let single_root = times.original(group(MEASURED_NODES)) / MEASURED_RATIO;
    times.original(group(MODELLED_NODES)) / single_root
}

/// Ratio by which a multicast must be slower at 1024 nodes than at 8 for both ratios to hold.
fn implied_growth() -> f64 {
    let hops = |nodes: f64| nodes.log2();
    (hops(MODELLED_NODES) / MODELLED_RATIO) / (hops(MEASURED_NODES) / MEASURED_RATIO)
}
