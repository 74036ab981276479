//! Byte offsets of a live file: the constant part, then the values.
//!
//! ```text
//!    0  magic u64                 4·u32  version, counters, pid, rank    2·u32  size, job
//!   32  process: start u64, pid namespace u64, boot id 16 bytes     64  start of the rank u64
//!   72  host name, 64 bytes       136  command, 64 bytes
//!  200  names of the counters, 48 bytes each
//!    …  sequence u64, last update u64, end u64, then one u64 for each counter
//! ```
//!
//! Numbers have the byte order of the machine, because no other machine reads them; a file of
//! another byte order has another magic number. Texts end at their first zero byte. Times are
//! nanoseconds since 1970.
//!
//! Guarantees: [`parse`] takes any bytes without panic; its result contains nothing that a terminal
//! would obey. Cost: 200 + 24 + 56 bytes per counter, about 2 KiB.

use super::LiveError;
use super::process::Process;
use std::collections::BTreeSet;

/// First word of a file.
pub(super) const MAGIC: u64 = u64::from_be_bytes(*b"OMNLIVE\x01");
/// Version of this layout.
pub(super) const VERSION: u32 = 1;
/// Most counters of a file.
pub(super) const COUNTERS_MAX: u32 = 512;

const TEXT_BYTES: usize = 64;
const NAME_BYTES: usize = 48;
const HOST_AT: usize = 72;
const COMMAND_AT: usize = HOST_AT + TEXT_BYTES;
pub(super) const NAMES_AT: usize = COMMAND_AT + TEXT_BYTES;
/// Words before the values: sequence, last update, end.
const WORDS_BEFORE: usize = 3;
/// Size in bytes of the largest file.
pub(super) const FILE_BYTES_MAX: usize = file_bytes(COUNTERS_MAX as usize);

const _: () = assert!(NAMES_AT.is_multiple_of(8) && NAME_BYTES.is_multiple_of(8), "words align");

/// Size in bytes of a file with `counters` counters.
pub(super) const fn file_bytes(counters: usize) -> usize {
    values_at(counters) + 8 * (WORDS_BEFORE + counters)
}

/// Offset in bytes of the first word that changes: the sequence.
pub(super) const fn values_at(counters: usize) -> usize {
    NAMES_AT + NAME_BYTES * counters
}

/// Data that a rank writes once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Identity {
    pub(super) process: Process,
    pub(super) rank: u32,
    pub(super) size: u32,
    pub(super) job: u32,
    pub(super) started_ns: u64,
    pub(super) host: String,
    pub(super) command: String,
}

/// Complete content of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Content {
    pub(super) identity: Identity,
    pub(super) sequence: u64,
    pub(super) updated_ns: u64,
    /// 0 while the rank has not ended.
    pub(super) ended_ns: u64,
    pub(super) counters: Vec<(String, u64)>,
}

/// Creates the bytes of a file with all values 0, last updated when the rank started.
///
/// Panics if there are more than [`COUNTERS_MAX`] names or one is too long: the names are ours.
pub(super) fn emit(identity: &Identity, names: &[&str]) -> Vec<u8> {
    assert!(names.len() <= COUNTERS_MAX as usize, "{} counters", names.len());
    let mut bytes = vec![0; file_bytes(names.len())];
    put_word(&mut bytes, 0, MAGIC);
    let Identity { process, rank, size, job, started_ns, host, command } = identity;
    for (at, number) in [VERSION, names.len() as u32, process.pid, *rank, *size, *job]
        .into_iter()
        .enumerate()
        .map(|(index, number)| (8 + 4 * index, number))
    {
        bytes[at..at + 4].copy_from_slice(&number.to_ne_bytes());
    }
    put_word(&mut bytes, 32, process.start_ticks);
    put_word(&mut bytes, 40, process.pid_namespace);
    bytes[48..64].copy_from_slice(&process.boot_id);
    put_word(&mut bytes, 64, *started_ns);
    put_text(&mut bytes[HOST_AT..COMMAND_AT], host);
    put_text(&mut bytes[COMMAND_AT..NAMES_AT], command);
    for (slot, name) in bytes[NAMES_AT..].chunks_exact_mut(NAME_BYTES).zip(names) {
        assert!(is_name(name), "'{name}' is not a valid name of a counter");
        put_text(slot, name);
    }
    put_word(&mut bytes, values_at(names.len()) + 8, *started_ns);
    bytes
}

fn put_word(bytes: &mut [u8], at: usize, word: u64) {
    bytes[at..at + 8].copy_from_slice(&word.to_ne_bytes());
}

/// Copies `text` into `slot` as far as it fits, followed by a zero byte.
fn put_text(slot: &mut [u8], text: &str) {
    let length = text.len().min(slot.len() - 1);
    slot[..length].copy_from_slice(&text.as_bytes()[..length]);
}

/// True for a short name in lower case, like the fields of programs.
fn is_name(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    !name.is_empty() && name.len() < NAME_BYTES && name.bytes().all(is_letter)
}

/// Parses `bytes`, a whole file.
///
/// # Errors
/// [`LiveError`], which names the problem.
pub(super) fn parse(bytes: &[u8]) -> Result<Content, LiveError> {
    let wrong_size = |needed| LiveError::WrongSize { bytes: bytes.len(), needed };
    if bytes.iter().all(|byte| *byte == 0) {
        return Err(LiveError::Empty);
    }
    let header: &[u8; NAMES_AT] = bytes.first_chunk().ok_or(wrong_size(NAMES_AT))?;
    let number = |index: usize| u32::from_ne_bytes(field(header, 8 + 4 * index));
    if word(header, 0) != MAGIC {
        return Err(LiveError::NoLiveFile);
    }
    let (version, counters) = (number(0), number(1));
    if version != VERSION {
        return Err(LiveError::Version { found: version, known: VERSION });
    }
    if counters > COUNTERS_MAX {
        return Err(LiveError::TooManyCounters { counters, counters_max: COUNTERS_MAX });
    }
    let needed = file_bytes(counters as usize);
    if bytes.len() != needed {
        return Err(wrong_size(needed));
    }
    let identity = Identity {
        process: Process {
            pid: number(2),
            start_ticks: word(header, 32),
            pid_namespace: word(header, 40),
            boot_id: field(header, 48),
        },
        rank: number(3),
        size: number(4),
        job: number(5),
        started_ns: word(header, 64),
        host: text(&header[HOST_AT..COMMAND_AT]),
        command: text(&header[COMMAND_AT..]),
    };
    if identity.rank >= identity.size {
        return Err(LiveError::RankOutOfRange { rank: identity.rank, size: identity.size });
    }
    let (names, words) = bytes[NAMES_AT..needed].split_at(NAME_BYTES * counters as usize);
    let names = names.chunks_exact(NAME_BYTES).map(|slot| {
        let name = text(slot);
        if is_name(&name) { Ok(name) } else { Err(LiveError::CounterName { name }) }
    });
    let values = words.chunks_exact(8).skip(WORDS_BEFORE).map(|value| word(value, 0));
    let counters = names.zip(values).map(|(name, value)| Ok((name?, value)));
    let counters = counters.collect::<Result<Vec<(String, u64)>, LiveError>>()?;
    let mut seen = BTreeSet::new();
    if let Some((name, _)) = counters.iter().find(|(name, _)| !seen.insert(name)) {
        return Err(LiveError::CounterName { name: name.clone() });
    }
    let [sequence, updated_ns, ended_ns] = std::array::from_fn(|index| word(words, 8 * index));
    Ok(Content { identity, sequence, updated_ns, ended_ns, counters })
}

fn field<const BYTES: usize>(bytes: &[u8], at: usize) -> [u8; BYTES] {
    *bytes[at..].first_chunk().expect("offsets lie inside what was measured")
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(field(bytes, at))
}

/// Text of a slot, without characters that a terminal would obey.
fn text(slot: &[u8]) -> String {
    let length = slot.iter().position(|byte| *byte == 0).unwrap_or(slot.len());
    let text = String::from_utf8_lossy(&slot[..length]);
    text.chars().map(|mark| if is_obeyed(mark) { '\u{fffd}' } else { mark }).collect()
}

/// True for a character that a terminal may obey instead of showing it, or that changes the
/// direction.
fn is_obeyed(mark: char) -> bool {
    let turns = ['\u{200e}'..='\u{200f}', '\u{202a}'..='\u{202e}', '\u{2066}'..='\u{2069}'];
    mark.is_control() || mark == '\u{061c}' || turns.iter().any(|range| range.contains(&mark))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const NAMES: [&str; 3] = ["packets_sent", "bytes_sent", "gso"];

    fn identity() -> Identity {
        Identity {
            process: Process { pid: 7, start_ticks: 8, pid_namespace: 9, boot_id: [10; 16] },
            rank: 1,
            size: 4,
            job: 0xfeed,
            started_ns: 11,
            host: "node1".to_owned(),
            command: "train".to_owned(),
        }
    }

    fn file() -> Vec<u8> {
        let mut bytes = emit(&identity(), &NAMES);
        let at = values_at(NAMES.len());
        for (index, word) in [2, 12, 0, 100, 200, 1].into_iter().enumerate() {
            put_word(&mut bytes, at + 8 * index, word);
        }
        bytes
    }

    #[test]
    fn written_content_is_read_back() {
        let content = parse(&file()).unwrap();
        assert_eq!(content.identity, identity());
        assert_eq!((content.sequence, content.updated_ns, content.ended_ns), (2, 12, 0));
        let counters = [("packets_sent", 100), ("bytes_sent", 200), ("gso", 1)];
        assert_eq!(content.counters, counters.map(|(name, value)| (name.to_owned(), value)));
    }

    #[test]
    fn every_truncation_is_refused() {
        let bytes = file();
        for length in 1..bytes.len() {
            let error = parse(&bytes[..length]).unwrap_err();
            let LiveError::WrongSize { bytes, needed } = error else { panic!("{error}") };
            assert!(bytes == length && needed > length);
        }
    }

    #[test]
    fn corrupting_any_byte_causes_neither_panics_nor_unsafe_text() {
        let good = file();
        for at in 0..good.len() {
            for change in [1, 0x1b, 0x80, 0xff] {
                let mut bytes = good.clone();
                bytes[at] ^= change;
                let Ok(content) = parse(&bytes) else { continue };
                assert_eq!(content.counters.len(), NAMES.len());
                let names = content.counters.iter().map(|(name, _)| name);
                let texts = [&content.identity.host, &content.identity.command];
                assert!(!names.chain(texts).any(|text| text.contains(char::is_control)));
            }
        }
    }

    #[test]
    fn each_kind_of_corruption_has_its_own_error() {
        let with = |at: usize, bytes: [u8; 4]| {
            let mut file = file();
            file[at..at + 4].copy_from_slice(&bytes);
            parse(&file).unwrap_err()
        };
        let number = |number: u32| number.to_ne_bytes();
        assert!(matches!(with(0, *b"\x7fELF"), LiveError::NoLiveFile));
        assert!(matches!(with(8, number(2)), LiveError::Version { found: 2, known: VERSION }));
        assert!(matches!(with(12, number(4)), LiveError::WrongSize { .. }));
        assert!(matches!(with(12, [0xff; 4]), LiveError::TooManyCounters { .. }));
        assert!(matches!(with(20, number(4)), LiveError::RankOutOfRange { rank: 4, size: 4 }));
        assert!(matches!(with(NAMES_AT, *b"a\x1b[m"), LiveError::CounterName { .. }));
        let twice = emit(&identity(), &["sent", "gso", "sent"]);
        let twice = parse(&twice).map(drop);
        assert!(matches!(twice, Err(LiveError::CounterName { name }) if name == "sent"));
    }

    #[test]
    fn long_texts_are_truncated_and_control_characters_replaced() {
        let long = "h".repeat(100);
        let named = Identity { host: long, command: "a\x1b[2Jb\u{202e}c".to_owned(), ..identity() };
        let bytes = emit(&named, &NAMES);
        let identity = parse(&bytes).unwrap().identity;
        assert_eq!(identity.host, "h".repeat(TEXT_BYTES - 1));
        assert_eq!(identity.command, "a\u{fffd}[2Jb\u{fffd}c");
    }
}
