//! All targets with their findings, on any number of threads.

use crate::figure::Figure;
use crate::finding::Finding;
use crate::target::{Paper, Target};
use crate::{barrier, broadcast, itb, multisend, pm};
use omnes_sim::testbed::{self, Constant, Testbed};
use std::collections::BTreeSet;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{OnceLock, mpsc};

/// A target with its finding.
#[derive(Clone, PartialEq, Debug)]
pub struct Judged {
    /// The paper's statement.
    pub target: &'static Target,
    /// Our result.
    pub finding: Finding,
}

impl Judged {
    /// True if a constant was fitted to this target, so that the result proves nothing.
    pub fn is_fitted(&self) -> bool {
        fitted().contains(&self.target.id)
    }

    /// Deviation of ours from the stated value in percent; the largest if there are several
    /// figures. `None` if the figures cannot be compared one by one.
    pub fn deviation_percent(&self) -> Option<f64> {
        let (stated, ours) = (self.target.value.numbers(), self.finding.ours.as_ref()?.numbers());
        if stated.is_empty() || stated.len() != ours.len() || stated.contains(&0.0) {
            return None;
        }
        let deviations =
            stated.iter().zip(ours).map(|(stated, ours)| 100.0 * (ours / stated - 1.0));
        deviations.reduce(|far, next| if next.abs() > far.abs() { next } else { far })
    }
}

/// Constants of all simulations: name and title of a testbed, and its constants.
pub(crate) fn constants() -> Vec<(String, Vec<Constant>)> {
    let built_in = testbed::built_in().into_iter().chain([multisend::testbed()]);
    let named = |it: Testbed| (format!("{}: {}", it.name, it.title), it.constants);
    let of_pm =
        ("pm-lanai2: PM on SPARCstations and the first Myrinet".to_owned(), pm::constants());
    built_in.map(named).chain([of_pm]).collect()
}

/// Ids of all targets to which a constant was fitted.
fn fitted() -> &'static BTreeSet<String> {
    static FITTED: OnceLock<BTreeSet<String>> = OnceLock::new();
    FITTED.get_or_init(|| {
        let points = constants().into_iter().flat_map(|(_, constants)| constants);
        let elsewhere = multisend::FITTED.iter().chain(itb::FITTED).map(|id| id.to_string());
        points.flat_map(|constant| constant.points).chain(elsewhere).collect()
    })
}

/// The finding for an id such as `MS-F04`; `None` if the target does not exist.
pub fn compute(id: &str) -> Option<Finding> {
    Target::find(id).map(find)
}

/// The findings of `targets`, in their order, computed on up to `threads` threads.
///
/// Calls `done` from the calling thread for each target when its finding is available, in no fixed
/// order.
///
/// # Panics
/// If a finding panics.
pub fn compute_all(
    targets: &[&'static Target],
    threads: usize,
    mut done: impl FnMut(&Target),
) -> Vec<Judged> {
    let mut findings: Vec<Option<Finding>> = vec![None; targets.len()];
    let next = AtomicUsize::new(0);
    let (report, reports) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, targets.len().max(1)) {
            let (report, next) = (report.clone(), &next);
            scope.spawn(move || {
                while let index = next.fetch_add(1, Ordering::Relaxed)
                    && let Some(target) = targets.get(index)
                {
                    // The receiver is dropped early only if the caller panics.
                    let _ = report.send((index, find(target)));
                }
            });
        }
        drop(report);
        for (index, finding) in reports {
            done(targets[index]);
            findings[index] = Some(finding);
        }
    });
    let judged = targets.iter().zip(findings);
    judged
        .map(|(target, finding)| Judged {
            target,
            finding: finding.expect("a thread that panics ends the scope"),
        })
        .collect()
}

/// Figures of a paper, redrawn.
pub fn figures(paper: Paper) -> Vec<Figure> {
    match paper {
        Paper::MultiSend => multisend::figures(),
        Paper::Broadcast => broadcast::figures(),
        Paper::Pm => pm::figures(),
        Paper::Barrier => barrier::figures(),
        Paper::Itb => itb::figures(),
    }
}

/// A target whose simulation panics is missed; the other targets are computed all the same.
fn find(target: &Target) -> Finding {
    catch_unwind(|| find_or_panic(target)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Finding::seen(target, Err(format!("panics: {}", text.unwrap_or("without a word"))))
    })
}

fn find_or_panic(target: &Target) -> Finding {
    let found = match target.paper() {
        Paper::MultiSend => multisend::find(target),
        Paper::Broadcast => broadcast::find(target),
        Paper::Pm => pm::find(target),
        Paper::Barrier => barrier::find(target),
        Paper::Itb => itb::find(target),
    };
    found.unwrap_or_else(|| Finding::not_computed("nothing computes it yet"))
}
