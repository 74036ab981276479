//! Setup for a point: the ranks that take part, and how packets to all travel among them.
//!
//! A multi-send has a communicator of its own with its root and destinations. The form of
//! multi-send is changed when the point requests a form other than the previous one. All calls are
//! collective.

use super::options::{Algorithm, Op};
use super::rank;
use super::transfer::Point;
use crate::stderr::notice;
use anyhow::{Context, Result, ensure};
use omnes::policy::Policy;
use omnes::{BcastAlgorithm, Cloning, Communicator, MultiSend, Tree};

/// A point that can be measured now.
pub struct Setting {
    /// The point with the algorithm that is called.
    pub point: Point,
    /// Communicator of the ranks that take part; all ranks of the job at a rank that does not.
    pub comm: Communicator,
    /// How packets to all travel, such as `flat:nic`, if forms are compared.
    pub form: Option<String>,
}

/// The present setup.
pub struct Stage<'comm> {
    world: &'comm Communicator,
    /// Number of destinations, and their communicator; `None` at other ranks.
    part: Option<(u32, Option<Communicator>)>,
    /// Last requested form, with the number of destinations of a part, and the form obtained.
    taken: Option<(Option<u32>, MultiSend, String)>,
}

/// Rejects comparing multi-sends in a job that has none; the same at every rank.
pub fn check_multisend(comm: &Communicator) -> Result<()> {
    ensure!(
        comm.multisend().is_some(),
        "this job does not multi-send: run it on at least two nodes with `--env \
         OMNES_MULTICAST=off`, and without OMNES_MULTISEND=off"
    );
    Ok(())
}

/// Forms to compare: the typed ones, with `auto` replaced by the form of rank 0; for a multi-send
/// without any, one copy per destination by the root, made in rank 0's way. The same at every rank.
/// Collective.
pub fn forms(comm: &Communicator, op: Op, typed: &[MultiSend]) -> Result<Vec<MultiSend>> {
    let Some(present) = comm.multisend() else { return Ok(Vec::new()) };
    let is_loop = rank::share_number(comm, u64::from(present.form() == Cloning::Loop))? != 0;
    let cloning = if is_loop { Cloning::Loop } else { Cloning::Auto };
    let meant = |form: &MultiSend| match form {
        MultiSend::Auto => MultiSend::Tree(present.tree, cloning),
        other => *other,
    };
    Ok(match (op, typed) {
        (Op::Multisend, []) => vec![MultiSend::Tree(Tree::Flat, cloning)],
        // Multisend is always compared with `off`.
        (Op::Multisend, _) => {
            typed.iter().filter(|form| **form != MultiSend::Off).map(meant).collect()
        }
        _ => typed.iter().map(meant).collect(),
    })
}

impl<'comm> Stage<'comm> {
    /// Creates a stage with only the job set up.
    pub fn new(world: &'comm Communicator) -> Self {
        Self { world, part: None, taken: None }
    }

    /// Sets up `point`; `None`, the same at every rank, if it cannot be measured.
    ///
    /// # Errors
    /// A form that is not available at this rank; the others then see it leave.
    pub fn set(&mut self, mut point: Point) -> Result<Option<Setting>> {
        let place = (point.op == Op::Multisend).then_some(point.destinations);
        let comm = match place {
            Some(destinations) => self.part(destinations)?.unwrap_or_else(|| self.world.clone()),
            None => self.world.clone(),
        };
        point.algorithm = called(&comm, &point);
        let Some(form) = point.multisend else {
            return Ok(Some(Setting { point, comm, form: None }));
        };
        let MultiSend::Tree(tree, cloning) = form else {
            let form = Some(form.to_string());
            return Ok(Some(Setting { point, comm, form }));
        };
        let taken = match &self.taken {
            Some((at, last, name)) if (*at, *last) == (place, form) => name.clone(),
            _ => {
                let is_in = place.is_none_or(|destinations| self.world.rank() <= destinations);
                let used = if is_in { comm.use_multisend_tree(tree, cloning) } else { Ok(None) };
                let used = used.with_context(|| format!("--multisend {form}"))?;
                used.map(|it| it.brief()).unwrap_or_default()
            }
        };
        self.taken = Some((place, form, taken.clone()));
        // Rank 0 always takes part.
        if rank::share_number(self.world, u64::from(!taken.is_empty()))? == 0 {
            if self.world.rank() == 0 {
                let destinations = point.destinations;
                notice(format_args!(
                    "left out: the first {destinations} ranks behind rank 0 are on its node"
                ));
            }
            return Ok(None);
        }
        Ok(Some(Setting { point, comm, form: Some(taken) }))
    }

    /// Communicator of rank 0 and this many others; `None` at a rank that is left out.
    fn part(&mut self, destinations: u32) -> Result<Option<Communicator>> {
        if let Some((_, part)) = self.part.as_ref().filter(|(count, _)| *count == destinations) {
            return Ok(part.clone());
        }
        let color = (self.world.rank() <= destinations).then_some(0);
        let part = self.world.split(color, 0)?;
        self.part = Some((destinations, part.clone()));
        self.taken = None;
        Ok(part)
    }
}

/// Algorithm called for a point: the library chooses by itself only if no form is compared.
fn called(comm: &Communicator, point: &Point) -> Algorithm {
    match (point.multisend, point.algorithm) {
        (Some(MultiSend::Off), _) => {
            Algorithm::Bcast(BcastAlgorithm::tree(comm.chosen_tree(point.bytes)))
        }
        (Some(_), Algorithm::Default) => {
            Algorithm::Bcast(BcastAlgorithm::Multicast(Policy::COMBINED))
        }
        (_, algorithm) => algorithm,
    }
}
