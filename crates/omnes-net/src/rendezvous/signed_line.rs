//! Lines of the rendezvous, each a JSON value, with a proof that the writer knows the job's key:
//! its answer to the reader's challenge, over the whole message.
//!
//! A message that is the same for all readers, as rank 0's table is, would be hashed and written
//! anew for each of them. So it is created once ([`ToAll`]), and the individual message to each
//! reader contains its digest, which no other text can match without the key.

use omnes_wire::JobKey;
use serde::{Deserialize, Serialize};
use std::io::{Error, ErrorKind, Write};
use std::net::TcpStream;

/// Role for the digest of a message to all; no rank has this number.
const TO_ALL: u32 = u32::MAX - 1;

/// A message with its proof.
#[derive(Serialize, Deserialize)]
pub(crate) struct Signed {
    /// A JSON value.
    said: String,
    answer: u64,
    /// Another JSON value, which is the same for all readers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    to_all: Option<String>,
}

/// A message to all readers, in addition to the individual ones.
pub(crate) struct ToAll {
    digest: u64,
    /// The end of each of the lines.
    end: Vec<u8>,
}

impl Signed {
    /// Creates the message of `role` in answer to `challenge`.
    pub(crate) fn new(
        value: &impl Serialize,
        key: Option<&JobKey>,
        challenge: u64,
        role: u32,
    ) -> std::io::Result<Self> {
        let said = serde_json::to_string(value)?;
        let answer = answer(key, challenge, role, &said);
        Ok(Self { said, answer, to_all: None })
    }

    /// Beginning of the line with this message, which ends with [`ToAll::end`].
    pub(crate) fn begin_line(&self) -> std::io::Result<Vec<u8>> {
        let mut line = serde_json::to_vec(self)?;
        assert_eq!(line.pop(), Some(b'}'), "an object");
        Ok(line)
    }

    /// True if `role` has written the message, in answer to `challenge`, and knows the key; without
    /// a key, all writers are trusted that have none either.
    pub(crate) fn is_proven(&self, key: Option<&JobKey>, challenge: u64, role: u32) -> bool {
        self.answer == answer(key, challenge, role, &self.said)
    }

    pub(crate) fn read<T: for<'a> Deserialize<'a>>(&self) -> std::io::Result<T> {
        Ok(serde_json::from_str(&self.said)?)
    }

    /// Reads the message to all, if it has the digest `named`.
    pub(crate) fn read_to_all<T: for<'a> Deserialize<'a>>(
        &self,
        key: Option<&JobKey>,
        named: u64,
    ) -> std::io::Result<T> {
        let text = self.to_all.as_deref().unwrap_or_default();
        if digest(key, text) != named {
            return Err(ErrorKind::InvalidData.into());
        }
        Ok(serde_json::from_str(text)?)
    }
}

impl ToAll {
    pub(crate) fn new(value: &impl Serialize, key: Option<&JobKey>) -> std::io::Result<Self> {
        let text = serde_json::to_string(value)?;
        let mut end = br#","to_all":"#.to_vec();
        serde_json::to_writer(&mut end, &text)?;
        end.extend(b"}\n");
        Ok(Self { digest: digest(key, &text), end })
    }

    /// Digest that each reader must be told, for [`Signed::read_to_all`].
    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }

    /// End of each line, after [`Signed::begin_line`].
    pub(crate) fn end(&self) -> &[u8] {
        &self.end
    }
}

/// Digest of a message to all.
fn digest(key: Option<&JobKey>, text: &str) -> u64 {
    answer(key, 0, TO_ALL, text)
}

/// The answer to a challenge, computed in the same way by both sides.
fn answer(key: Option<&JobKey>, challenge: u64, role: u32, said: &str) -> u64 {
    let Some(key) = key else { return 0 };
    let mut bytes = challenge.to_be_bytes().to_vec();
    bytes.extend(role.to_be_bytes());
    bytes.extend(said.as_bytes());
    key.answer(&bytes)
}

/// Length of a [`proof`] in bytes.
pub(crate) const PROOF_BYTES: usize = 8;

/// Proof for a word that is not a line, in answer to `challenge`; without a key it proves nothing.
pub(crate) fn proof(
    key: Option<&JobKey>,
    challenge: u64,
    role: u32,
    word: &str,
) -> [u8; PROOF_BYTES] {
    answer(key, challenge, role, word).to_be_bytes()
}

/// The line that contains `value`.
pub(crate) fn line(value: &impl Serialize) -> std::io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    Ok(line)
}

pub(crate) fn write_line(mut stream: &TcpStream, value: &impl Serialize) -> std::io::Result<()> {
    stream.write_all(&line(value)?)
}

/// Reads a line of at most `bytes_max` bytes or not many more from `read`, which returns as much as
/// is available, like [`Read::read`](std::io::Read::read).
///
/// # Errors
/// The errors of `read`, [`ErrorKind::UnexpectedEof`] if the input ends before the line does, and
/// [`ErrorKind::InvalidData`] for any other input, as soon as that is known.
pub(crate) fn read_line<T: for<'a> Deserialize<'a>>(
    bytes_max: usize,
    mut read: impl FnMut(&mut [u8]) -> std::io::Result<usize>,
) -> std::io::Result<T> {
    let (mut line, mut piece) = (Vec::new(), [0; 4096]);
    // Only one line is sent before the answer, so reading ahead loses nothing.
    while line.last() != Some(&b'\n') {
        match read(&mut piece)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            bytes => line.extend_from_slice(&piece[..bytes]),
        }
        if line[0] != b'{' || line.len() > bytes_max {
            return Err(ErrorKind::InvalidData.into());
        }
    }
    serde_json::from_slice(&line).map_err(|error| Error::new(ErrorKind::InvalidData, error))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn signed_line_is_rejected_with_another_key_challenge_rank_or_content() {
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
    fn altered_or_missing_shared_table_is_rejected() {
        let key = JobKey::new([7; 16]);
        let to_all = ToAll::new(&["a \"table\""], Some(&key)).unwrap();
        let said = Signed::new(&to_all.digest(), Some(&key), 5, 3).unwrap();
        let line = [&said.begin_line().unwrap(), to_all.end()].concat();
        assert_eq!(line.iter().position(|letter| *letter == b'\n'), Some(line.len() - 1));
        let mut heard: Signed = serde_json::from_slice(&line).unwrap();
        assert!(heard.is_proven(Some(&key), 5, 3));
        let named = heard.read().unwrap();
        let table =
            |heard: &Signed, key: &JobKey| heard.read_to_all::<[String; 1]>(Some(key), named);
        assert_eq!(table(&heard, &key).unwrap(), ["a \"table\""]);
        assert!(table(&heard, &JobKey::new([8; 16])).is_err());
        for other in [Some(r#"["b"]"#.to_owned()), None] {
            heard.to_all = other;
            assert!(table(&heard, &key).is_err());
        }
    }
}
