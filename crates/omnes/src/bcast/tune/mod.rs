//! Costs of broadcasts on this network: measured, kept, and used to choose algorithms.
//!
//! | module | what it does |
//! |---|---|
//! | `cost` | the model: time from size, ranks and three measurements of each algorithm |
//! | `measure`, `step` | measuring: rank 0 leads, the others follow |
//! | `hop` | a hop of a multi-send, and the tree that follows [MS-R17] |
//! | `network`, `cache` | what measurements are valid for; the file that keeps them |
//!
//! At its start, a job of at least three ranks on at least two nodes reads measurements from rank
//! 0's file. If there are none of this network, rank 0 leads a quick measurement and stores the
//! results. Four of the later jobs repeat it at growing intervals, and the medians are used, so
//! that a single bad moment does not decide. In any case rank 0 sends the figures to the others, so
//! all ranks make the same choice, whatever files they can read themselves. Without measurements
//! the choice follows built-in rules: within a node, with [`Tune::Off`], if `OMNES_BCAST` names an
//! algorithm, and on loopback, which is not a network (unless [`Tune::In`] names a file).
//!
//! If multi-send replaces multicast, [`Communicator::tune`] also measures its hops. The lambda of a
//! full packet is kept with the measurements, and from then on determines the tree of jobs that
//! leave it to the library. The start of a job does not measure it.
//!
//! Cost: at the start a broadcast of 82 bytes, and if no measurements are known a quick one: in a
//! lab of 8 hosts on 2 cores some 20 ms, on links of 1 Gbit/s some 160 ms. Not done: figures for
//! parts of a communicator that differ in more than size, such as two nodes behind a slow link.

mod cache;
mod cost;
mod hop;
mod measure;
mod network;
mod step;

pub use cache::{Cache, Effort, Entry, Tune};
pub use cost::{Candidate, Cost, Figures, Point};
pub use hop::Hop;
pub use measure::{BYTES_MAX, Measured, Plan, Planned};
pub use network::Network;
pub(crate) use network::masked;

use super::BcastAlgorithm;
use crate::communicator::Communicator;
use crate::error::Error;
use omnes_topo::{Lambda, Tree};

/// With fewer ranks, all algorithms are the same.
const RANKS_MIN: u32 = 3;

/// Results of a measurement, at rank 0.
#[derive(Clone, Debug)]
pub struct Tuned {
    /// The network that was measured.
    pub network: Network,
    /// The costs derived from the times.
    pub figures: Figures,
    /// The measured times.
    pub measured: Vec<Measured>,
    /// Hops of multi-sends, by size of message; none if the job does not multi-send, or has fewer
    /// than three nodes.
    pub hops: Vec<Hop>,
}

impl Communicator {
    /// Measures broadcasts according to rank 0's `plan`, and chooses algorithms by the results from
    /// then on. Collective, on the communicator of all ranks, while no other operation is in
    /// progress. At rank 0, `observe` is called after each size; only rank 0 gets the results.
    /// Nothing is measured with fewer than three ranks or on a single node. Nothing is stored.
    ///
    /// A job that multi-sends measures hops first and, if the tree is left to the library, uses the
    /// best one for the results; the costs are those of the new tree.
    ///
    /// # Errors
    /// As [`Self::bcast`]; [`Error::NoNic`] if the job requires the kernel NIC for multi-sends and
    /// there are too few slots.
    pub fn tune(&self, plan: &Plan, observe: impl FnMut(u64)) -> Result<Option<Tuned>, Error> {
        if !self.has_choice() {
            return Ok(None);
        }
        self.job().engine.without_queue(|| self.measure(plan, observe))
    }

    fn measure(&self, plan: &Plan, observe: impl FnMut(u64)) -> Result<Option<Tuned>, Error> {
        let hops = self.measure_hops(plan.budget)?;
        let lambda_thousandths = self.take_lambda_of(&hops)?;
        if self.rank() != 0 {
            return self.follow().map(|()| None);
        }
        let measured = self.lead(plan, observe)?;
        let figures = measure::figures(&measured, self.size(), self.has_multicast());
        let figures = figures.map(|figures| Figures { lambda_thousandths, ..figures });
        self.end_measuring(figures)?;
        let network = Network::of(self);
        Ok(figures.map(|figures| Tuned { network, figures, measured, hops }))
    }

    /// Switches to the tree that follows from rank 0's `hops`; returns their lambda, if there is
    /// one.
    fn take_lambda_of(&self, hops: &[Hop]) -> Result<Option<u32>, Error> {
        if !self.job().has_multisend() {
            return Ok(None);
        }
        let hop = hop::decisive(hops, self.job().engine.payload_bytes());
        let mut bytes = hop.map_or(0, |hop| hop.lambda().thousandths()).to_be_bytes();
        self.broadcast(0, &mut bytes, BcastAlgorithm::tree(Tree::Binomial))?;
        let lambda = Lambda::from_thousandths(u32::from_be_bytes(bytes)).ok();
        self.use_lambda(lambda)?;
        Ok(lambda.map(Lambda::thousandths))
    }

    /// The tree that [`Self::bcast`] uses for a message of `bytes` bytes if neither multicast nor
    /// multi-send may be used.
    pub fn chosen_tree(&self, bytes: usize) -> Tree {
        self.situation(bytes).tree()
    }

    /// The costs by which algorithms of broadcasts are chosen, the same on all ranks; `None` if
    /// they are chosen by built-in rules.
    pub fn figures(&self) -> Option<Figures> {
        self.job().figures()
    }

    /// The algorithm that [`Self::bcast`] uses for a message of `bytes` bytes.
    pub fn chosen_bcast(&self, bytes: usize) -> crate::BcastAlgorithm {
        self.usual_bcast(bytes)
    }

    /// Takes figures from rank 0's file, or measures them. Called once, by all ranks of the job,
    /// after the probe for multicast.
    pub(crate) fn tune_at_start(&self) -> Result<(), Error> {
        if !self.has_choice() {
            return Ok(());
        }
        self.job().engine.without_queue(|| self.share_figures())?;
        self.use_lambda(self.figures().and_then(|figures| figures.lambda()))
    }

    fn share_figures(&self) -> Result<(), Error> {
        if self.rank() != 0 {
            return self.follow();
        }
        if !self.is_worth_tuning() {
            return self.end_measuring(None);
        }
        let (cache, network) = (Cache::of(&self.job().config.tune), Network::of(self));
        let known = cache.as_ref().and_then(|cache| cache.find(&network));
        if let Some(entry) = known.as_ref().filter(|entry| !entry.is_due()) {
            return self.end_measuring(Some(entry.figures));
        }
        let measured = self.lead(&Plan::quick(), |_| {})?;
        let found = measure::figures(&measured, self.size(), self.has_multicast());
        let entry = found.map(|figures| match known {
            Some(entry) => entry.and(figures),
            None => Entry::new(network, figures, Effort::Quick),
        });
        self.end_measuring(entry.as_ref().map(|entry| entry.figures))?;
        if let (Some(cache), Some(entry)) = (cache, entry) {
            // A rank that cannot store them measures again at the next start.
            let _ = cache.store(entry);
        }
        Ok(())
    }

    /// True if the algorithms differ, and the ranks are on more than one node.
    fn has_choice(&self) -> bool {
        self.size() >= RANKS_MIN && self.nodes().count() > 1
    }

    /// True if figures would be used, and would be those of a network.
    fn is_worth_tuning(&self) -> bool {
        let job = self.job();
        let is_elsewhere = || job.engine.peers().iter().any(|peer| !peer.ip().is_loopback());
        job.config.bcast.is_none()
            && match job.config.tune {
                Tune::Off => false,
                Tune::Auto => is_elsewhere(),
                Tune::In(_) => true,
            }
    }
}
