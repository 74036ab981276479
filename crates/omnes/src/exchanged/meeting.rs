//! How ranks that already have an exchange join a job of their own.
//!
//! Rank 0 listens before any rank connects, at a port that was free, and reports address and key
//! through the exchange; then all join like the ranks of any other job. Whatever happens to one of
//! them, all learn of it in the last round, and a rank whose own join succeeded leaves the job
//! again.

use super::jobs::Identity;
use super::place::{self, Whereabouts};
use super::rounds::{gather, hear};
use crate::communicator::Communicator;
use crate::config::Config;
use crate::error::Error;
use crate::exchange::Exchange;
use crate::job::Job;
use omnes_net::NetError;
use omnes_wire::JobKey;
use serde::{Deserialize, Serialize};
use std::net::{SocketAddr, TcpListener};

/// Ranks with the same key give the same answer to this.
const KEY_CHECK: &[u8] = b"omnes: is it the same key?";

/// Report of a rank before all meet.
#[derive(Serialize, Deserialize)]
struct Card {
    whereabouts: Whereabouts,
    /// Derived from the key that the user has set, if any, without revealing it.
    key_check: Option<u64>,
    /// True if the user has set the address at which to meet; only rank 0's value counts.
    has_rendezvous: bool,
}

/// Report of rank 0.
#[derive(Serialize, Deserialize)]
struct Invitation {
    job: Identity,
    address: SocketAddr,
    /// Absent if the ranks already have a key.
    key: Option<[u8; 16]>,
}

/// Lets all ranks join a job of their own, with `settings` if they are valid; returns its name, and
/// the communicator of all its ranks. Calls `on_silent` with a rank whose packets never arrived, or
/// that never received any, if no rank knows another reason. Collective.
pub(super) fn meet(
    ranks: &dyn Exchange,
    settings: Result<Config, Error>,
    on_silent: impl FnOnce(u32),
) -> Result<(Identity, Communicator), Error> {
    let prepared = settings.and_then(|config| Ok((card(&config)?, config)));
    let cards = gather(ranks, prepared.as_ref().map(|(card, _)| card))?;
    let (_, config) = prepared?;
    check_keys(&cards)?;
    let listening = listen(&config, cards)?;
    let invited = listening.and_then(|listener| invite(&config, listener));
    let invitations = gather(ranks, invited.as_ref().map(|(invitation, _)| invitation))?;
    let (_, listener) = invited?;
    let Some(invitation) = invitations.into_iter().next().flatten() else {
        let reason = "it gave no invitation of rank 0".to_owned();
        return Err(Error::ExchangeFailed { reason });
    };
    let job = invitation.job;
    let joined = Job::join(invitation.accept(config), listener).and_then(Communicator::of_all);
    if let Err(failure) = hear(ranks, joined.as_ref().map(|_| &())) {
        let silent = match joined {
            Err(Error::PeerFailed { rank } | Error::DeclaredFailed { by: rank }) => Some(rank),
            Err(Error::Join(NetError::NoUdp { silent, .. })) => Some(silent.0),
            _ => None,
        };
        silent.filter(|_| failure.is_silence).map(on_silent);
        return Err(failure.error);
    }
    Ok((job, joined?))
}

fn card(config: &Config) -> Result<Card, Error> {
    if config.encryption && config.job_key.is_none() {
        // It is unknown whether others can read what the exchange carries.
        return Err(Error::Join(omnes_net::NetError::KeyWanted));
    }
    Ok(Card {
        whereabouts: Whereabouts::here(config.interface.as_ref())?,
        key_check: config.job_key.as_ref().map(|key| key.answer(KEY_CHECK)),
        has_rendezvous: !config.rendezvous.is_empty(),
    })
}

/// Either all ranks have the same key or none has one.
fn check_keys(cards: &[Card]) -> Result<(), Error> {
    let Some(first) = cards.first() else { return Ok(()) };
    let other = (0..).zip(cards).find(|(_, card)| card.key_check != first.key_check);
    let Some((rank, _)) = other else { return Ok(()) };
    let reason = "OMNES_JOB_KEY differs from rank 0's; set it alike for all ranks, or for none";
    Err(Error::Exchange { rank, reason: reason.to_owned() })
}

/// Listens if this is rank 0. The outer error is the same on all ranks.
fn listen(config: &Config, cards: Vec<Card>) -> Result<Result<Option<TcpListener>, Error>, Error> {
    let has_rendezvous = cards.first().is_some_and(|card| card.has_rendezvous);
    let all: Vec<Whereabouts> = cards.into_iter().map(|card| card.whereabouts).collect();
    if has_rendezvous {
        let listen = || place::listen_as_told(&config.rendezvous, place::is_one_node(&all));
        return Ok((config.rank == 0).then(listen).transpose());
    }
    let chosen = place::choose(&all)?;
    Ok((config.rank == 0).then(|| place::listen_at(chosen)).transpose())
}

/// This rank's report on where to meet; `None` except at rank 0.
fn invite(
    config: &Config,
    listener: Option<TcpListener>,
) -> Result<(Option<Invitation>, Option<TcpListener>), Error> {
    let Some(listener) = listener else { return Ok((None, None)) };
    let address = listener.local_addr().map_err(|source| {
        Error::Join(omnes_net::NetError::System { what: "local address", source })
    })?;
    let key = match config.job_key {
        Some(_) => None,
        None => Some(omnes_net::random()?),
    };
    Ok((Some(Invitation { job: Identity::draw()?, address, key }), Some(listener)))
}

impl Invitation {
    /// The settings with which to join.
    fn accept(self, config: Config) -> Config {
        // A key that was set is never replaced by one from the exchange, whoever can write to it.
        let key = config.job_key.or(self.key.map(JobKey::new));
        Config { rendezvous: self.address.to_string(), job_key: key, ..config }
    }
}
