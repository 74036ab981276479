//! Checksum of a copy, over the data read and the data written.
//!
//! Two sums: one over the contents of all files in order, without holes, so that for a plain file
//! it is the one that `b3sum` prints; and one over everything else (names, sizes, modes, links, and
//! the positions of data).

use super::frame::{Frame, data_header};

/// Size of [`Sums`] on the wire.
pub const SUMS_BYTES: usize = 2 * blake3::OUT_LEN;

/// Computes the sums of frames, in order.
#[derive(Default)]
pub struct Checksum {
    contents: blake3::Hasher,
    structure: blake3::Hasher,
    /// Bytes of a frame; kept to reuse its memory.
    emitted: Vec<u8>,
}

/// Checksums of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sums {
    contents: blake3::Hash,
    structure: blake3::Hash,
}

impl Checksum {
    /// Adds `frame`.
    pub fn update(&mut self, frame: &Frame<'_>) {
        if let Frame::Data { offset, bytes } = frame {
            self.structure.update(&data_header(*offset, bytes.len()));
            self.contents.update(bytes);
        } else {
            self.emitted.clear();
            frame.emit(&mut self.emitted);
            self.structure.update(&self.emitted);
        }
    }

    /// Sums of the frames so far.
    pub fn sums(&self) -> Sums {
        Sums { contents: self.contents.finalize(), structure: self.structure.finalize() }
    }
}

impl Sums {
    /// The part that differs, if any.
    pub fn difference(&self, other: &Self) -> Option<&'static str> {
        if self.contents != other.contents {
            Some("contents")
        } else if self.structure != other.structure {
            Some("names or places")
        } else {
            None
        }
    }

    /// Wire format.
    pub fn to_bytes(self) -> [u8; SUMS_BYTES] {
        let mut bytes = [0; SUMS_BYTES];
        bytes[..blake3::OUT_LEN].copy_from_slice(self.contents.as_bytes());
        bytes[blake3::OUT_LEN..].copy_from_slice(self.structure.as_bytes());
        bytes
    }

    /// Parses the wire format.
    pub fn from_bytes(bytes: &[u8; SUMS_BYTES]) -> Self {
        let (contents, structure) = bytes.split_at(blake3::OUT_LEN);
        let hash = |half| blake3::Hash::from_slice(half).expect("half of the bytes is one hash");
        Self { contents: hash(contents), structure: hash(structure) }
    }
}

impl std::fmt::Display for Sums {
    /// First digits of the sum of the contents; enough to compare by eye.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.contents.to_hex()[..16])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums_of(frames: &[Frame<'_>]) -> Sums {
        let mut checksum = Checksum::default();
        frames.iter().for_each(|frame| checksum.update(frame));
        checksum.sums()
    }

    #[test]
    fn content_checksum_equals_that_of_the_plain_file() {
        let halves = [
            Frame::Data { offset: 0, bytes: b"abc" },
            Frame::Data { offset: 3, bytes: b"def" },
            Frame::End,
        ];
        let expected = blake3::hash(b"abcdef").to_hex()[..16].to_owned();
        assert_eq!(sums_of(&halves).to_string(), expected);
    }

    #[test]
    fn offsets_and_names_change_the_checksum() {
        let data = |offset| sums_of(&[Frame::Data { offset, bytes: b"abc" }]);
        let enter = |name| sums_of(&[Frame::Enter { name }]);
        assert_eq!(data(0).difference(&data(1)), Some("names or places"));
        assert_eq!(enter(b"a").difference(&enter(b"b")), Some("names or places"));
        assert_eq!(enter(b"a").difference(&enter(b"a")), None);
    }

    #[test]
    fn checksums_round_trip_through_bytes() {
        let sums = sums_of(&[Frame::Data { offset: 0, bytes: b"abc" }, Frame::End]);
        assert_eq!(Sums::from_bytes(&sums.to_bytes()), sums);
    }
}
