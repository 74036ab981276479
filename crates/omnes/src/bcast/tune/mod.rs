//! What broadcasts cost on this network: measured once, kept, and chosen by.
//!
//! | module | what it does |
//! |---|---|
//! | `cost` | the model: time from size, ranks and three figures for each way |
//! | `measure`, `step` | filling it: rank 0 leads, the others follow |
//! | `hop` | a hop of a multi-send, and the tree that follows [MS-R17] |
//! | `network`, `cache` | what figures are valid for; the file that keeps them |
//!
//! At its start a job of at least three ranks on at least two nodes takes figures from rank 0's
//! file. If there are none of this network, rank 0 leads a quick measurement, and stores them; so
//! do four of the later jobs, ever further apart, and the medians hold, lest one bad moment decide.
//! Either way it tells the others, so all ranks choose alike whatever file they would see
//! themselves. Without figures the choice follows built-in rules: within a node, for [`Tune::Off`],
//! where `OMNES_BCAST` names an algorithm anyway, and on loopback, which is no network (unless
//! [`Tune::In`] names a file).
//!
//! Where multi-send takes the place of multicast, [`Communicator::tune`] also measures its hops;
//! the lambda of a full packet is kept with the figures, and from then on makes the tree of jobs
//! that leave it to the library. A job's start does not measure it.
//!
//! Cost: at the start a broadcast of 82 bytes, and where nothing is known a measurement: in a lab
//! of 8 hosts on 2 cores some 20 ms, on links of 1 Gbit/s some 160 ms. Not done: figures for parts
//! of a communicator that differ in more than size, such as two nodes behind a slow link.

mod cache;
mod cost;
mod hop;
mod measure;
mod network;
mod step;

pub use cache::{Cache, Effort, Entry, Tune};
pub use cost::{Cost, Figures, Point, Way};
pub use hop::Hop;
pub use measure::{BYTES_MAX, Measured, Plan, Planned};
pub use network::Network;
pub(crate) use network::masked;

use super::Bcast;
use crate::communicator::Communicator;
use crate::error::Error;
use omnes_topo::{Lambda, Tree};

/// With fewer ranks, all ways are the same.
const RANKS_MIN: u32 = 3;

/// What rank 0 knows after a measurement.
#[derive(Clone, Debug)]
pub struct Tuned {
    /// For which network.
    pub network: Network,
    /// What follows from the times.
    pub figures: Figures,
    /// The times.
    pub measured: Vec<Measured>,
    /// Hops of multi-sends, by size of message; none where the job does not multi-send, or has
    /// fewer than three nodes.
    pub hops: Vec<Hop>,
}

impl Communicator {
    /// Measures broadcasts as rank 0's `plan` has it, and chooses by the figures from then on. To
    /// be called on the communicator of all ranks, by all of them, while nothing else is under
    /// way. At rank 0, `observe` is called after each size; the outcome is there only. Without at
    /// least three ranks and two nodes nothing is measured. Nothing is stored.
    ///
    /// A job that multi-sends measures hops first, and takes the tree that follows if that is left
    /// to the library; the figures are those of the new tree.
    ///
    /// # Errors
    /// As [`Self::bcast`]; [`Error::NoNic`] if the job insists on the kernel's NIC for multi-sends
    /// and there are too few slots.
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

    /// Takes the tree that follows from rank 0's `hops`; their lambda, if there is one.
    fn take_lambda_of(&self, hops: &[Hop]) -> Result<Option<u32>, Error> {
        if !self.job().has_multisend() {
            return Ok(None);
        }
        let hop = hop::decisive(hops, self.job().engine.payload_bytes());
        let mut bytes = hop.map_or(0, |hop| hop.lambda().thousandths()).to_be_bytes();
        self.broadcast(0, &mut bytes, Bcast::tree(Tree::Binomial))?;
        let lambda = Lambda::from_thousandths(u32::from_be_bytes(bytes)).ok();
        self.use_lambda(lambda)?;
        Ok(lambda.map(Lambda::thousandths))
    }

    /// What [`Self::bcast`] takes for a message of `bytes` bytes where neither multicast nor
    /// multi-send may be used.
    pub fn chosen_tree(&self, bytes: usize) -> Tree {
        self.situation(bytes).tree()
    }

    /// The figures that broadcasts are chosen by; the same at all ranks. Nothing if they are
    /// chosen by built-in rules.
    pub fn figures(&self) -> Option<Figures> {
        self.job().figures()
    }

    /// What [`Self::bcast`] takes for a message of `bytes` bytes.
    pub fn chosen_bcast(&self, bytes: usize) -> crate::Bcast {
        self.usual_bcast(bytes)
    }

    /// Takes figures from rank 0's file, or measures them. To be called once, by all ranks of the
    /// job, when the probe of multicast is over.
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
            // Whoever cannot store measures again at the next start.
            let _ = cache.store(entry);
        }
        Ok(())
    }

    /// Whether ways differ, and cross a network.
    fn has_choice(&self) -> bool {
        self.size() >= RANKS_MIN && self.nodes().count() > 1
    }

    /// Whether figures would be used, and be those of a network.
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
