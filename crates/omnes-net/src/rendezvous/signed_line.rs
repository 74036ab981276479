//! Lines of the rendezvous, each a JSON value, and the proof that whoever wrote one knows the job's
//! key: its answer to the reader's challenge, over all that it says.
//!
//! What is the same for all readers, as rank 0's table is, would be hashed and written down anew
//! for each of them. So it is made once ([`ToAll`]), and what each reader is told by itself names
//! its digest, which nobody can match by other words without the key.

use omnes_wire::JobKey;
use serde::{Deserialize, Serialize};
use std::io::{Error, ErrorKind, Write};
use std::net::TcpStream;

/// In a role's place where the digest of what is said to all is made; no rank has this number.
const TO_ALL: u32 = u32::MAX - 1;

/// What is said, with its proof.
#[derive(Serialize, Deserialize)]
pub(crate) struct Signed {
    /// A JSON value.
    said: String,
    answer: u64,
    /// Another one, which is the same for all readers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    to_all: Option<String>,
}

/// What is said to all readers, beside what each is told.
pub(crate) struct ToAll {
    digest: u64,
    /// How each of the lines ends.
    end: Vec<u8>,
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
        Ok(Self { said, answer, to_all: None })
    }

    /// The beginning of the line that says this, and ends as [`ToAll::end`] does.
    pub(crate) fn begin_line(&self) -> std::io::Result<Vec<u8>> {
        let mut line = serde_json::to_vec(self)?;
        assert_eq!(line.pop(), Some(b'}'), "an object");
        Ok(line)
    }

    /// Whether `role` has said it, to `challenge`, and knows the key; without one all are believed
    /// who have none either.
    pub(crate) fn is_proven(&self, key: Option<&JobKey>, challenge: u64, role: u32) -> bool {
        self.answer == answer(key, challenge, role, &self.said)
    }

    pub(crate) fn read<T: for<'a> Deserialize<'a>>(&self) -> std::io::Result<T> {
        Ok(serde_json::from_str(&self.said)?)
    }

    /// What is said to all, if it has the digest that was named.
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

    /// What each reader must be told, for [`Signed::read_to_all`].
    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }

    /// The end of each line, behind [`Signed::begin_line`].
    pub(crate) fn end(&self) -> &[u8] {
        &self.end
    }
}

/// Of what is said to all.
fn digest(key: Option<&JobKey>, text: &str) -> u64 {
    answer(key, 0, TO_ALL, text)
}

/// Both sides answer the same way.
fn answer(key: Option<&JobKey>, challenge: u64, role: u32, said: &str) -> u64 {
    let Some(key) = key else { return 0 };
    let mut bytes = challenge.to_be_bytes().to_vec();
    bytes.extend(role.to_be_bytes());
    bytes.extend(said.as_bytes());
    key.answer(&bytes)
}

/// Bytes of a [`proof`].
pub(crate) const PROOF_BYTES: usize = 8;

/// The proof behind a word that is no line, for whoever asked `challenge`; without a key it proves
/// nothing.
pub(crate) fn proof(
    key: Option<&JobKey>,
    challenge: u64,
    role: u32,
    word: &str,
) -> [u8; PROOF_BYTES] {
    answer(key, challenge, role, word).to_be_bytes()
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

/// A line, of at most `bytes_max` bytes or not many more, of what `read` gives: as much as there
/// is, as [`Read::read`](std::io::Read::read).
///
/// # Errors
/// Those of `read`, [`ErrorKind::UnexpectedEof`] where it ends before the line does and
/// [`ErrorKind::InvalidData`] for what is no such line, as soon as that is known.
pub(crate) fn read_line<T: for<'a> Deserialize<'a>>(
    bytes_max: usize,
    mut read: impl FnMut(&mut [u8]) -> std::io::Result<usize>,
) -> std::io::Result<T> {
    let (mut line, mut piece) = (Vec::new(), [0; 4096]);
    // One line is all that comes before the answer, so reading ahead loses nothing.
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
    fn what_is_said_to_all_cannot_be_changed_either() {
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
