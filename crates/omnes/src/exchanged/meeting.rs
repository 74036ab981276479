//! How ranks that exchange already join a job of their own.
//!
//! Rank 0 listens before anybody calls, at a port that was free, and tells address and key through
//! the exchange; then all join as the ranks of any other job do. Whatever happens to one of them,
//! all hear of it in the last round, and a rank whose own join worked leaves the job again.

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

/// Ranks with one key answer this alike.
const KEY_CHECK: &[u8] = b"omnes: is it the same key?";

/// What a rank tells of itself before all meet.
#[derive(Serialize, Deserialize)]
struct Card {
    whereabouts: Whereabouts,
    /// Follows from the key that the user has set, if there is one, and does not tell it.
    key_check: Option<u64>,
    /// The user has said where to meet; of meaning for rank 0.
    has_rendezvous: bool,
}

/// What rank 0 tells.
#[derive(Serialize, Deserialize)]
struct Invitation {
    job: Identity,
    address: SocketAddr,
    /// Absent where the ranks have a key already.
    key: Option<[u8; 16]>,
}

/// Lets all ranks join a job of theirs, as `settings` say where they are known; its name, and the
/// communicator of all its ranks. `on_silent` is told of a rank whose packets never came, or that
/// never got any, where nobody knows of another reason. Collective.
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
        // Nobody knows what the exchange's own ways are.
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

/// Listens, at rank 0. The outer error is the same on all ranks.
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

/// What this rank tells about where to meet: only rank 0 says something.
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
    /// The settings to join with.
    fn accept(self, config: Config) -> Config {
        // Nobody who can write to the exchange takes the place of a key that was set.
        let key = config.job_key.or(self.key.map(JobKey::new));
        Config { rendezvous: self.address.to_string(), job_key: key, ..config }
    }
}
