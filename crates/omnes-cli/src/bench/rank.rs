//! Functions that `omnes bench` and `omnes cp` need beyond broadcast: joining a job, and small
//! gathers at rank 0.
//!
//! Gathering is linear: one message from every rank to rank 0. It is used between measurements and
//! between chunks, never inside a timed call, so its cost is that of `size - 1` small packets.
//! Every call here is collective: all ranks make the same calls in the same order.

use crate::causes::with_causes;
use crate::print::CannotWrite;
use crate::stderr::notice;
use anyhow::{Context, Result, bail};
use omnes::{BcastAlgorithm, Communicator, Error, Source, Tag, Tree};
use std::process::ExitCode;

/// Tag of all messages sent here; messages of one pair of ranks arrive in the order of the calls.
const TAG: u32 = 0x6272;

/// Joins the job that this process is a rank of.
///
/// `example` is a command line that would have worked; it is shown if there is no launcher. Errors:
/// no launcher's environment, or the other ranks cannot be reached.
pub fn join(example: &str) -> Result<Communicator> {
    match Communicator::from_env() {
        Ok(comm) => Ok(comm),
        Err(Error::NoLauncher) => {
            bail!(
                "this measures inside a job, but no launcher started this process; run `{example}`"
            )
        }
        Err(error) => Err(error).context("cannot join the job"),
    }
}

/// Ends a rank after an error that every rank sees alike: rank 0 reports it, and all return status
/// 2.
pub fn refuse(comm: &Communicator, error: &anyhow::Error) -> ExitCode {
    if comm.rank() == 0 {
        notice(format_args!("{}", with_causes(error)));
    }
    ExitCode::from(2)
}

/// Ends a rank: together with the others unless one of them is gone. `outcome` says whether all
/// went well, the same at every rank, except for rank 0's output, which may be lost.
pub fn leave(comm: Communicator, outcome: Result<bool>) -> ExitCode {
    let rank = comm.rank();
    let is_lost = outcome.as_ref().is_err_and(|error| error.is::<CannotWrite>());
    let left = match outcome {
        Err(error) if !is_lost => Err(error),
        outcome => comm.finalize().map_err(Into::into).and(outcome),
    };
    match left {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            notice(format_args!("rank {rank}: {}", with_causes(&error)));
            ExitCode::from(if is_lost { 2 } else { 1 })
        }
    }
}

/// Sends `mine`, of the same length at every rank, to rank 0, which passes each rank's bytes to
/// `take` in rank order, its own first. On other ranks `take` is not called.
pub fn gather(comm: &Communicator, mine: &[u8], mut take: impl FnMut(u32, &[u8])) -> Result<()> {
    if comm.rank() != 0 {
        return post(comm, mine);
    }
    take(0, mine);
    collect(comm, mine.len(), take)
}

/// First half of a gather, at every rank except rank 0, which may collect at a later time.
pub fn post(comm: &Communicator, mine: &[u8]) -> Result<()> {
    Ok(comm.send(0, TAG, mine)?)
}

/// Second half of a gather, at rank 0: receives one posted message of `bytes` from every other
/// rank, in rank order; waits for ranks that have not posted yet.
pub fn collect(comm: &Communicator, bytes: usize, mut take: impl FnMut(u32, &[u8])) -> Result<()> {
    let mut theirs = vec![0; bytes];
    for rank in 1..comm.size() {
        comm.recv(Source::Rank(rank), Tag::Is(TAG), &mut theirs)?;
        take(rank, &theirs);
    }
    Ok(())
}

/// [`gather`] of integers, combined element by element; the result is valid at rank 0.
pub fn combine(
    comm: &Communicator,
    mine: &[u64],
    with: impl Fn(u64, u64) -> u64,
) -> Result<Vec<u64>> {
    let bytes: Vec<u8> = mine.iter().flat_map(|value| value.to_be_bytes()).collect();
    let mut combined: Option<Vec<u64>> = None;
    gather(comm, &bytes, |_, theirs| {
        let theirs = theirs.as_chunks::<8>().0.iter().map(|bytes| u64::from_be_bytes(*bytes));
        match &mut combined {
            None => combined = Some(theirs.collect()),
            Some(so_far) => {
                so_far.iter_mut().zip(theirs).for_each(|(old, new)| *old = with(*old, new));
            }
        }
    })?;
    Ok(combined.unwrap_or_else(|| mine.to_vec()))
}

/// Broadcasts rank 0's bytes; never by multicast, so that multicast counters show only measured
/// calls.
pub fn share<const BYTES: usize>(comm: &Communicator, mine: [u8; BYTES]) -> Result<[u8; BYTES]> {
    let mut bytes = mine;
    comm.bcast_with(0, &mut bytes, BcastAlgorithm::tree(Tree::Binomial))?;
    Ok(bytes)
}

/// Broadcasts rank 0's number.
pub fn share_number(comm: &Communicator, mine: u64) -> Result<u64> {
    share(comm, mine.to_be_bytes()).map(u64::from_be_bytes)
}
