//! Lines of the rendezvous, each a JSON value, and the proof that whoever wrote one knows the job's
//! key: its answer to the reader's challenge, over all that it says.

use omnes_wire::JobKey;
use serde::{Deserialize, Serialize};
use std::io::{Error, ErrorKind, Write};
use std::net::TcpStream;

/// Longest line that is read from rank 0; its table has a place for each rank.
const LINE_BYTES_MAX: usize = 1 << 20;
/// Letters of another side's words that are shown.
const WORDS_MAX: usize = 1000;

/// What is said, with its proof.
#[derive(Serialize, Deserialize)]
pub(crate) struct Signed {
    /// A JSON value.
    said: String,
    answer: u64,
}

impl Signed {
    /// What `role` says to whoever asked `challenge`.
    pub(crate) fn new(
        value: &impl Serialize,
        key: Option<&JobKey>,
        challenge: u64,
        role: u32,
    ) -> std::io::Result<Self> {
        let said = serde_json::to_string(value)?;
        let answer = answer(key, challenge, role, &said);
        Ok(Self { said, answer })
    }

    /// Whether `role` has said it, to `challenge`, and knows the key; without one all are believed
    /// who have none either.
    pub(crate) fn is_proven(&self, key: Option<&JobKey>, challenge: u64, role: u32) -> bool {
        self.answer == answer(key, challenge, role, &self.said)
    }

    pub(crate) fn read<T: for<'a> Deserialize<'a>>(&self) -> std::io::Result<T> {
        Ok(serde_json::from_str(&self.said)?)
    }
}

/// Both sides answer the same way.
fn answer(key: Option<&JobKey>, challenge: u64, role: u32, said: &str) -> u64 {
    let Some(key) = key else { return 0 };
    let mut bytes = challenge.to_be_bytes().to_vec();
    bytes.extend(role.to_be_bytes());
    bytes.extend(said.as_bytes());
    key.answer(&bytes)
}

/// The line that says `value`.
pub(crate) fn line(value: &impl Serialize) -> std::io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    Ok(line)
}

pub(crate) fn write_line(mut stream: &TcpStream, value: &impl Serialize) -> std::io::Result<()> {
    stream.write_all(&line(value)?)
}

/// A line of what `read` gives: as much as there is, as [`Read::read`](std::io::Read::read).
///
/// # Errors
/// Those of `read`, [`ErrorKind::UnexpectedEof`] where it ends before the line does and
/// [`ErrorKind::InvalidData`] for what is no such line, as soon as that is known.
pub(crate) fn read_line<T: for<'a> Deserialize<'a>>(
    mut read: impl FnMut(&mut [u8]) -> std::io::Result<usize>,
) -> std::io::Result<T> {
    let (mut line, mut piece) = (Vec::new(), [0; 4096]);
    // One line is all that comes before the answer, so reading ahead loses nothing.
    while line.last() != Some(&b'\n') {
        match read(&mut piece)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            bytes => line.extend_from_slice(&piece[..bytes]),
        }
        if line[0] != b'{' || line.len() > LINE_BYTES_MAX {
            return Err(ErrorKind::InvalidData.into());
        }
    }
    serde_json::from_slice(&line).map_err(|error| Error::new(ErrorKind::InvalidData, error))
}

/// Words of another side as a terminal may have them.
pub(crate) fn printable(words: &str) -> String {
    let shown =
        |letter: char| if letter.is_control() { char::REPLACEMENT_CHARACTER } else { letter };
    words.chars().take(WORDS_MAX).map(shown).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_said_cannot_be_changed_by_who_does_not_know_the_key() {
        let key = JobKey::new([7; 16]);
        let said = Signed::new(&(1, "a"), Some(&key), 5, 3).unwrap();
        assert!(said.is_proven(Some(&key), 5, 3));
        assert_eq!(said.read::<(u32, String)>().unwrap(), (1, "a".to_owned()));
        assert!(!said.is_proven(Some(&key), 6, 3));
        assert!(!said.is_proven(Some(&key), 5, 4));
        assert!(!said.is_proven(Some(&JobKey::new([8; 16])), 5, 3));
        assert!(!said.is_proven(None, 5, 3));
        let changed = Signed { said: said.said.replace('1', "2"), ..said };
        assert!(!changed.is_proven(Some(&key), 5, 3));
    }

    #[test]
    fn words_of_others_do_not_reach_the_terminal_as_commands() {
        assert_eq!(printable("a\u{1b}[2Jb\n\u{9b}c"), "a\u{fffd}[2Jb\u{fffd}\u{fffd}c");
        assert_eq!(printable(&"ß".repeat(5000)).chars().count(), WORDS_MAX);
    }
}
