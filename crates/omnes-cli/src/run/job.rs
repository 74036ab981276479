//! Data that every rank of a job receives: the environment, the key, the command.
//!
//! The key is 128 fresh random bits per job. It reaches ranks through their environment, or through
//! a pipe if they run on other machines, and is never printed: anybody who reads it can forge
//! packets.

use super::placement::Place;
use anyhow::{Result, anyhow};
use std::ffi::OsString;

/// Name of the variable that holds the key; kept apart from the rest of the environment.
pub const KEY_NAME: &str = "OMNES_JOB_KEY";

/// Prefix of the variables that Omnes reads.
const SETTING_PREFIX: &str = "OMNES_";

/// Names that the launcher sets, which `--env` must not set.
pub const RESERVED_NAMES: [&str; 6] = [
    "OMNES_RANK",
    "OMNES_SIZE",
    "OMNES_RENDEZVOUS",
    "OMNES_LOCAL_RANK",
    "OMNES_LOCAL_SIZE",
    KEY_NAME,
];

/// A job: the data common to all its ranks.
pub struct Job {
    /// Number of ranks.
    pub size: usize,
    /// `host:port` of the rendezvous at rank 0.
    pub rendezvous: String,
    /// The caller's [`settings`] if ranks do not inherit them, then those of `--env` in the order
    /// typed; the last of equal names wins.
    pub extra: Vec<(String, String)>,
    /// Program and arguments, at least one word.
    pub command: Vec<OsString>,
    key: String,
}

impl Job {
    /// Creates a job with a key of its own.
    pub fn new(
        size: usize,
        rendezvous: String,
        extra: Vec<(String, String)>,
        command: Vec<OsString>,
    ) -> Result<Self> {
        let key = format!("{:032x}", u128::from_be_bytes(random_bytes()?));
        Ok(Self { size, rendezvous, extra, command, key })
    }

    /// 32 lower-case hex digits; must not appear on command lines or in logs.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Environment of the rank at `place`, without the key.
    pub fn environment(&self, place: &Place) -> Vec<(String, String)> {
        let mut environment = self.extra.clone();
        let own = [
            ("OMNES_RANK", place.rank.to_string()),
            ("OMNES_SIZE", self.size.to_string()),
            ("OMNES_RENDEZVOUS", self.rendezvous.clone()),
            ("OMNES_LOCAL_RANK", place.local_rank.to_string()),
            ("OMNES_LOCAL_SIZE", place.local_size.to_string()),
        ];
        environment.extend(own.map(|(name, value)| (name.to_owned(), value)));
        environment
    }
}

/// Bytes from the kernel's random generator; errors only if the kernel has none.
pub fn random_bytes<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| anyhow!("cannot get random numbers: {error}"))?;
    Ok(bytes)
}

/// Variables of `environment` for ranks that do not inherit it: all named `OMNES_…` except
/// [`RESERVED_NAMES`], in order of names. Values are as Omnes reads them: bytes that are not valid
/// UTF-8 become U+FFFD.
pub fn settings(
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Vec<(String, String)> {
    let mut settings: Vec<_> = environment
        .into_iter()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
        .filter(|(name, _)| name.starts_with(SETTING_PREFIX) && check_name(name).is_ok())
        .map(|(name, value)| (name, value.to_string_lossy().into_owned()))
        .collect();
    settings.sort_unstable();
    settings
}

/// Parses `NAME=VALUE` of `--env`.
pub fn parse_variable(text: &str) -> Result<(String, String), String> {
    let (name, value) =
        text.split_once('=').ok_or_else(|| format!("'{text}' has no '='; give NAME=VALUE"))?;
    check_name(name)?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Rejects names that shells do not accept, and those that the launcher sets.
fn check_name(name: &str) -> Result<(), String> {
    let letter = |character: char| character.is_ascii_alphanumeric() || character == '_';
    if name.is_empty()
        || name.starts_with(|c: char| c.is_ascii_digit())
        || !name.chars().all(letter)
    {
        return Err(format!(
            "'{name}' is not a valid name of a variable; use letters, digits and '_'"
        ));
    }
    if RESERVED_NAMES.contains(&name) {
        return Err(format!("{name} is set by omnes run"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn variables_split_at_the_first_equals_sign() {
        assert_eq!(parse_variable("A=b=c").unwrap(), ("A".to_owned(), "b=c".to_owned()));
        assert_eq!(parse_variable("A=").unwrap(), ("A".to_owned(), String::new()));
    }

    #[test]
    fn invalid_and_reserved_variable_names_are_rejected() {
        for text in ["A", "=b", "1A=b", "A B=c", "OMNES_RANK=1", "OMNES_JOB_KEY=0"] {
            assert!(parse_variable(text).is_err(), "{text}");
        }
    }

    #[test]
    fn job_keys_are_unique_and_have_32_digits() {
        let key = || Job::new(1, String::new(), vec![], vec![]).unwrap().key().to_owned();
        let (first, second) = (key(), key());
        assert_eq!(first.len(), 32);
        assert_ne!(first, second);
    }
}
