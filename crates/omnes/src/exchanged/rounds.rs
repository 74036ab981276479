//! One round of an exchange: each rank reports its state, and all learn the same.
//!
//! A rank in trouble makes the round like the others, and reports its trouble in it. So all end
//! alike, and no rank waits for one that has given up.

use crate::error::Error;
use crate::exchange::Exchange;
use omnes_net::NetError;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Length of a row; the same in all rounds, and in all versions of the library.
const ROW_BYTES: usize = 1024;
/// Maximum length of a reported text; twice as much would fit, in case all of it are quotes.
const REASON_BYTES_MAX: usize = 480;

/// [`distance`] of the result of a trial between two hosts.
const NO_UDP: u8 = 0;
/// [`distance`] of the failure of one rank as seen by another.
const SILENCE: u8 = 4;

/// Why a round has failed.
pub(super) struct Failure {
    pub(super) error: Error,
    /// True if the ranks only know that another one was silent.
    pub(super) is_silence: bool,
}

impl Failure {
    fn of_exchange(reason: String) -> Self {
        Self { error: Error::ExchangeFailed { reason }, is_silence: false }
    }
}

/// Report of a rank in a round: a line of JSON, padded with blanks to the length of a row.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Told<T> {
    Well(T),
    Trouble { reason: String, distance: u8 },
}

/// The reports of all ranks, in order of ranks, if none is in trouble. Collective.
///
/// # Errors
/// [`Error::Exchange`] with the first rank in trouble and its reason, the same on all ranks; of
/// several troubles, one that is not merely a consequence of another. [`Error::ExchangeFailed`] if
/// the exchange itself does not work.
pub(super) fn gather<T: Serialize + DeserializeOwned>(
    ranks: &dyn Exchange,
    own: Result<&T, &Error>,
) -> Result<Vec<T>, Error> {
    hear(ranks, own).map_err(|failure| failure.error)
}

/// As [`gather`], and whether a silent rank is the cause.
pub(super) fn hear<T: Serialize + DeserializeOwned>(
    ranks: &dyn Exchange,
    own: Result<&T, &Error>,
) -> Result<Vec<T>, Failure> {
    let told = match own {
        Ok(value) => Told::Well(value),
        Err(error) => Told::Trouble { reason: reason(error), distance: distance(error) },
    };
    let table = ranks.allgather(&row(&told));
    let table = table.map_err(|error| Failure { error, is_silence: false })?;
    if table.len() != ranks.size() as usize * ROW_BYTES {
        let reason = format!("it gave {} bytes for {} ranks", table.len(), ranks.size());
        return Err(Failure::of_exchange(reason));
    }
    let mut all = Vec::with_capacity(table.len() / ROW_BYTES);
    let mut worst: Option<(u8, u32, String)> = None;
    for (rank, row) in (0..).zip(table.chunks(ROW_BYTES)) {
        match serde_json::from_slice(row) {
            Ok(Told::Well(value)) => all.push(value),
            Ok(Told::Trouble { reason, distance }) => {
                if worst.as_ref().is_none_or(|(nearest, ..)| distance < *nearest) {
                    worst = Some((distance, rank, reason));
                }
            }
            Err(error) => {
                let reason = format!("it returned data that rank {rank} cannot have sent: {error}");
                return Err(Failure::of_exchange(reason));
            }
        }
    }
    match worst {
        Some((distance, rank, reason)) => {
            let error = Error::Exchange { rank, reason };
            Err(Failure { error, is_silence: [NO_UDP, SILENCE].contains(&distance) })
        }
        None => Ok(all),
    }
}

fn row<T: Serialize>(told: &T) -> Vec<u8> {
    let mut row = serde_json::to_vec(told).expect("plain values become JSON");
    assert!(row.len() <= ROW_BYTES, "rows have room for all that is told: {}", row.len());
    row.resize(ROW_BYTES, b' ');
    row
}

/// The text of an error, cut to fit a row. A rank that makes rounds is alive: if another one has
/// declared it failed, it is only cut off.
fn reason(error: &Error) -> String {
    let mut reason = match error {
        Error::Exchange { reason, .. } => reason.clone(),
        Error::PeerFailed { rank } => {
            format!("no UDP packets arrived from rank {rank}; does a firewall drop them?")
        }
        Error::DeclaredFailed { by } => {
            format!("its UDP packets did not reach rank {by}; does a firewall drop them?")
        }
        _ => error.to_string(),
    };
    // Control characters would need more space as JSON.
    reason.retain(|letter| !letter.is_control());
    reason.truncate(reason.floor_char_boundary(REASON_BYTES_MAX));
    reason
}

/// How far an error may be from its cause: it may be another rank's, which this one has only learnt
/// of, or has felt the effect of.
fn distance(error: &Error) -> u8 {
    match error {
        Error::Join(NetError::NoUdp { .. }) => NO_UDP,
        Error::Join(NetError::Refused { .. }) => 2,
        Error::PeerFailed { .. } | Error::DeclaredFailed { .. } => SILENCE,
        Error::Join(
            NetError::RendezvousLost { .. }
            | NetError::RankLost { .. }
            | NetError::Missing { .. }
            | NetError::Unreachable { .. },
        ) => 3,
        // Some rank knows why these ranks have left.
        Error::PeerLeft { .. } => SILENCE + 1,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::Known;
    use super::super::jobs::{Identity, JOBS_TOLD_MAX};
    use super::*;

    /// Rank 0, to which the others report the given values.
    struct Others(Vec<Result<u32, Error>>);

    impl Exchange for Others {
        fn rank(&self) -> u32 {
            0
        }

        fn size(&self) -> u32 {
            self.0.len() as u32 + 1
        }

        fn allgather(&self, own: &[u8]) -> Result<Vec<u8>, Error> {
            let others = self.0.iter().map(|told| {
                row(&match told {
                    Ok(value) => Told::Well(value),
                    Err(error) => {
                        Told::Trouble { reason: reason(error), distance: distance(error) }
                    }
                })
            });
            Ok(std::iter::once(own.to_vec()).chain(others).flatten().collect())
        }
    }

    fn trouble() -> Error {
        Error::NoMulticast { reason: "no \"route\"\n".to_owned() }
    }

    #[test]
    fn successful_values_are_gathered_in_rank_order() {
        assert_eq!(gather(&Others(vec![Ok(8), Ok(9)]), Ok(&7)).unwrap(), [7, 8, 9]);
    }

    #[test]
    fn any_rank_error_fails_all_ranks_and_the_root_cause_is_preferred() {
        let refused = || Error::Join(NetError::Refused { reason: "rank 2 is late".to_owned() });
        let lost = || Error::PeerLeft { rank: 2 };
        let told = |others, own: Result<u32, Error>| {
            gather(&Others(others), own.as_ref()).unwrap_err().to_string()
        };
        let name = "OMNES_MULTICAST=on, but no \"route\"";
        assert_eq!(told(vec![Ok(1), Err(trouble())], Ok(0)), format!("rank 2: {name}"));
        assert_eq!(told(vec![Err(trouble()), Err(trouble())], Ok(0)), format!("rank 1: {name}"));
        assert_eq!(told(vec![Ok(1), Ok(1)], Err(trouble())), format!("rank 0: {name}"));
        let all = vec![Err(refused()), Err(trouble())];
        assert_eq!(told(all, Err(lost())), format!("rank 2: {name}"));
        let all = vec![Err(lost()), Err(refused())];
        assert_eq!(told(all, Err(lost())), "rank 2: rank 0 refused: rank 2 is late");
        let all = vec![Err(lost()), Err(Error::PeerFailed { rank: 0 })];
        let silence = "rank 2: no UDP packets arrived from rank 0; does a firewall drop them?";
        assert_eq!(told(all, Err(lost())), silence);
        let host = |last| std::net::IpAddr::from([10, 0, 0, last]);
        let no_udp = NetError::NoUdp {
            ways: vec![(host(1), host(2))],
            silent: omnes_wire::Rank(1),
            nat: None,
        };
        let text = told(vec![Err(trouble()), Err(refused())], Err(Error::Join(no_udp)));
        assert!(text.starts_with("rank 0: UDP packets do not get from 10.0.0.1 to 10.0.0.2"));
    }

    #[test]
    fn long_errors_are_truncated_to_fit_a_row() {
        for long in ["\"".repeat(5000), "ß".repeat(5000), "\u{1}".repeat(5000)] {
            let error = Error::NoNic { reason: long };
            let error = gather::<u32>(&Others(Vec::new()), Err(&error)).unwrap_err();
            let Error::Exchange { rank: 0, reason } = error else { panic!("{error}") };
            assert!(reason.len() <= REASON_BYTES_MAX && reason.starts_with("the kernel NIC is"));
        }
    }

    #[test]
    fn maximum_number_of_reported_jobs_fits_a_row() {
        let longest = || Known { job: Identity::LONGEST, next_communicator: u32::MAX };
        let told: Vec<Known> = (0..JOBS_TOLD_MAX).map(|_| longest()).collect();
        assert_eq!(row(&Told::Well(told)).len(), ROW_BYTES);
    }

    #[test]
    fn malformed_exchange_results_are_reported() {
        struct Nonsense(Vec<u8>);
        impl Exchange for Nonsense {
            fn rank(&self) -> u32 {
                0
            }

            fn size(&self) -> u32 {
                1
            }

            fn allgather(&self, _: &[u8]) -> Result<Vec<u8>, Error> {
                Ok(self.0.clone())
            }
        }
        for nonsense in [vec![], vec![0; ROW_BYTES], vec![b' '; ROW_BYTES + 1]] {
            let error = gather(&Nonsense(nonsense), Ok(&7)).unwrap_err();
            assert!(matches!(error, Error::ExchangeFailed { .. }), "{error}");
        }
    }
}
