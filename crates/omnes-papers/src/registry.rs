//! All targets with their findings, on any number of threads.

use crate::figure::Figure;
use crate::finding::Finding;
use crate::target::{Paper, Target};
use crate::{barrier, broadcast, itb, multisend, pm};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

/// A target with its finding.
#[derive(Clone, PartialEq, Debug)]
pub struct Judged {
    /// What is stated.
    pub target: &'static Target,
    /// What came out here.
    pub finding: Finding,
}

/// The finding of an id such as `MS-F04`; `None` if there is no such target.
pub fn compute(id: &str) -> Option<Finding> {
    Target::find(id).map(find)
}

/// The findings of `targets`, in their order, on up to `threads` threads.
///
/// `done` is told of each target when its finding is there, from the calling thread, in no fixed
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
                    // Nobody listens any more only if the caller panics.
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

/// The figures of a paper, drawn again.
pub fn figures(paper: Paper) -> Vec<Figure> {
    match paper {
        Paper::MultiSend => multisend::figures(),
        Paper::Broadcast => broadcast::figures(),
        Paper::Pm => pm::figures(),
        Paper::Barrier => barrier::figures(),
        Paper::Itb => itb::figures(),
    }
}

fn find(target: &Target) -> Finding {
    let found = match target.paper() {
        Paper::MultiSend => multisend::find(target),
        Paper::Broadcast => broadcast::find(target),
        Paper::Pm => pm::find(target),
        Paper::Barrier => barrier::find(target),
        Paper::Itb => itb::find(target),
    };
    found.unwrap_or_else(|| Finding::not_computed("nothing computes it yet"))
}
