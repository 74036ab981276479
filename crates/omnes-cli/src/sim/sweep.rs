//! All runs of a sweep, several of them concurrently, with results in order.
//!
//! Each run is executed by one thread from start to end, so results do not depend on the number of
//! threads. The heaviest runs start first, so that none is left alone at the end. On a terminal a
//! bar shows the progress, also within a run, because one run may take a minute.

use super::config::{Config, Point};
use super::measure::{Measured, measure};
use indicatif::{ProgressBar, ProgressStyle};
use omnes_sim::model::ModelError;
use omnes_sim::testbed::Testbed;
use std::cmp::Reverse;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

/// Resolution of the bar.
const STEPS: u64 = 1_000_000;

/// Outcome of a run.
pub type Outcome = Result<Measured, ModelError>;

/// How runs are executed.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Number of concurrent runs.
    pub jobs: u32,
    /// Whether the activity of every resource is recorded.
    pub has_bars: bool,
}

/// Executes all runs; `each` receives their outcomes, in order, as soon as they are known. Once it
/// breaks, no further run starts.
pub fn sweep(
    config: &Config,
    effort: Effort,
    mut each: impl FnMut(Point, Outcome) -> ControlFlow<()>,
) {
    let points = config.points();
    let order = heaviest_first(&points);
    let progress = progress();
    let steps = steps(&points);
    let (next, (sender, receiver)) = (AtomicUsize::new(0), mpsc::channel());
    let work = |sender: mpsc::Sender<(usize, Outcome)>, testbed: &Testbed| {
        while let Some(at) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
            let mut shown = 0;
            let mut show = |share: f64| {
                let reached = (share * steps[*at] as f64) as u64;
                progress.inc(reached - shown);
                shown = reached;
            };
            let outcome = measure(points[*at], testbed, effort.has_bars, &mut show);
            show(1.0);
            if sender.send((*at, outcome)).is_err() {
                break;
            }
        }
    };
    let jobs = effort.jobs.min(u32::try_from(points.len()).unwrap_or(u32::MAX));
    thread::scope(|scope| {
        for _ in 0..jobs {
            let sender = sender.clone();
            scope.spawn(|| work(sender, &config.testbed));
        }
        drop(sender);
        let (mut outcomes, mut told) = (vec![None; points.len()], 0);
        let ended = |runs: usize| progress.set_message(format!("{runs} of {}", points.len()));
        ended(0);
        'told: for (runs, (at, outcome)) in (1..).zip(receiver) {
            outcomes[at] = Some(outcome);
            ended(runs);
            while let Some(outcome) = outcomes.get_mut(told).and_then(Option::take) {
                if progress.suspend(|| each(points[told], outcome)).is_break() {
                    break 'told;
                }
                told += 1;
            }
        }
    });
    progress.finish_and_clear();
}

/// Indices of points, the heaviest first.
fn heaviest_first(points: &[Point]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..points.len()).collect();
    order.sort_by_key(|at| Reverse(points[*at].work()));
    order
}

/// Steps of the bar for each point, in proportion to its work.
fn steps(points: &[Point]) -> Vec<u64> {
    let all: f64 = points.iter().map(|point| point.work() as f64).sum();
    points.iter().map(|point| (point.work() as f64 / all * STEPS as f64) as u64).collect()
}

/// Progress bar, shown only on a terminal.
fn progress() -> ProgressBar {
    let template = "{bar:40} {percent} %, {msg} runs, {elapsed}";
    let style = ProgressStyle::with_template(template).expect("the template is valid");
    let progress = ProgressBar::new(STEPS).with_style(style);
    progress.enable_steady_tick(std::time::Duration::from_millis(200));
    progress
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::options::Wanted;
    use super::super::values::Op;
    use super::*;

    #[test]
    fn sweep_results_are_ordered_and_independent_of_the_number_of_jobs() {
        let wanted = Wanted {
            ranks: vec![4, 6],
            sizes: vec![8, 30_000],
            loss: vec!["0%".parse().unwrap(), "1%".parse().unwrap()],
            seeds: Some(2),
            ..Wanted::default()
        };
        let config = Config::resolve(Op::Bcast, wanted).unwrap();
        let run = |jobs| {
            let mut results = Vec::new();
            let effort = Effort { jobs, has_bars: false };
            sweep(&config, effort, |point, outcome| {
                let measured = outcome.unwrap();
                assert_eq!(measured.point, point);
                results.push((point, measured.hash, measured.summary));
                ControlFlow::Continue(())
            });
            results
        };
        let alone = run(1);
        assert_eq!(alone, run(2));
        assert_eq!(alone, run(7));
        let points: Vec<_> = alone.iter().map(|result| result.0).collect();
        assert_eq!(points, config.points());
        // Seeds matter if packets are lost.
        assert_ne!(alone[6].1, alone[7].1);
    }
}
