//! Stream format of a copy: frames inside chunks.
//!
//! A chunk is the data of one broadcast. It starts with a [`ChunkHeader`], which gives the length
//! of the chunk [`CHUNKS_AHEAD`] positions later, because every rank must know a broadcast's length
//! before it starts, and several are in flight concurrently; whole frames follow. No frame is
//! split, so each chunk is parsed by itself and data are written directly from it. Integers are
//! big-endian.
//!
//! ```text
//! file    1  meta  size:8  name            data, then end; ranges without data are holes
//! data    2  offset:8  bytes:4 + bytes     of the open file
//! end     3                                of the open file
//! link    4  meta  name  target            a symbolic link
//! enter   5  name                          the following entries are in this directory
//! leave   6  meta                          return to the parent directory
//! finish  7  files:8  bytes:8              end of the stream
//!
//! meta = mode:4 mtime_s:8 mtime_ns:4       name, target = length:2 + bytes
//! ```
//!
//! Exactly one file or directory is at the top; it has the empty name, because each rank knows the
//! name of its destination. A name is one component, never a path, so a stream cannot name anything
//! outside of the directory it is in. Parsing never panics: see [`FrameError`].

use super::names::{NameError, check_component};

/// Size of a chunk's header; the other bytes are frames.
pub const CHUNK_HEADER_BYTES: usize = 8;
/// Shortest valid chunk buffer; every frame except data fits into it (two texts of 64 KiB at most).
pub const CHUNK_BYTES_MIN: usize = 256 << 10;
/// Size of a data frame without its data.
pub const DATA_HEADER_BYTES: usize = 1 + 8 + 4;

const META_BYTES: usize = 4 + 8 + 4;

/// Mode and modification time of a file, link or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Permission bits.
    pub mode: u32,
    /// Modification time, in seconds since 1970.
    pub mtime_s: i64,
    /// Nanoseconds of the modification time, below a billion.
    pub mtime_ns: u32,
}

/// Maximum number of chunks in flight; each chunk announces the length of the chunk this many
/// positions later.
pub const CHUNKS_AHEAD: usize = 2;

/// What follows [`CHUNKS_AHEAD`] positions after the current chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Later {
    /// A chunk of this many bytes, header included.
    Chunk(u32),
    /// Nothing: the stream is complete with the chunks before.
    End,
    /// Nothing: rank 0 has given up.
    Abandoned,
}

/// First bytes of every chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkHeader {
    /// What follows [`CHUNKS_AHEAD`] positions later.
    pub later: Later,
}

impl ChunkHeader {
    /// Writes the header into the first [`CHUNK_HEADER_BYTES`] of `chunk`.
    pub fn emit(self, chunk: &mut [u8]) {
        let (state, bytes) = match self.later {
            Later::Chunk(bytes) => (0, bytes),
            Later::End => (1, 0),
            Later::Abandoned => (2, 0),
        };
        chunk[..4].copy_from_slice(&u32::to_be_bytes(state));
        chunk[4..CHUNK_HEADER_BYTES].copy_from_slice(&bytes.to_be_bytes());
    }

    /// Parses the header of `chunk`; rejects one that announces a chunk longer than `bytes_max`.
    pub fn parse(chunk: &[u8], bytes_max: usize) -> Result<Self, FrameError> {
        let mut reader = Reader { rest: chunk };
        let (state, bytes) = (reader.u32()?, reader.u32()?);
        let is_legal = (CHUNK_HEADER_BYTES..=bytes_max).contains(&(bytes as usize));
        let later = match (state, bytes) {
            (0, _) if is_legal => Later::Chunk(bytes),
            (1, 0) => Later::End,
            (2, 0) => Later::Abandoned,
            _ => return Err(FrameError::ChunkHeader { state, bytes }),
        };
        Ok(Self { later })
    }
}

/// One step of a copy; see the module header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'chunk> {
    /// A file starts; its size includes holes.
    File { meta: Meta, size: u64, name: &'chunk [u8] },
    /// Bytes of the open file, from `offset` on.
    Data { offset: u64, bytes: &'chunk [u8] },
    /// The open file is complete.
    End,
    /// A symbolic link to `target`, which may be any text.
    Link { meta: Meta, name: &'chunk [u8], target: &'chunk [u8] },
    /// A directory starts.
    Enter { name: &'chunk [u8] },
    /// The directory is complete.
    Leave { meta: Meta },
    /// The stream is complete.
    Finish(Totals),
}

/// Totals of a complete stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Files; links and directories are not counted.
    pub files: u64,
    /// Bytes of data, without holes.
    pub bytes: u64,
}

impl Frame<'_> {
    /// Appends the frame to `out` if its capacity suffices; otherwise leaves `out` unchanged.
    pub fn try_emit(&self, out: &mut Vec<u8>) -> Result<(), NoRoom> {
        if self.bytes() > out.capacity() - out.len() {
            return Err(NoRoom);
        }
        self.emit(out);
        Ok(())
    }

    /// Size of the frame.
    fn bytes(&self) -> usize {
        match self {
            Self::File { name, .. } => 1 + META_BYTES + 8 + 2 + name.len(),
            Self::Data { bytes, .. } => DATA_HEADER_BYTES + bytes.len(),
            Self::End => 1,
            Self::Link { name, target, .. } => 1 + META_BYTES + 2 + name.len() + 2 + target.len(),
            Self::Enter { name } => 1 + 2 + name.len(),
            Self::Leave { .. } => 1 + META_BYTES,
            Self::Finish(_) => 1 + 8 + 8,
        }
    }

    /// Appends the frame to `out`.
    pub fn emit(&self, out: &mut Vec<u8>) {
        match self {
            Self::File { meta, size, name } => {
                out.push(1);
                emit_meta(*meta, out);
                out.extend(size.to_be_bytes());
                emit_text(name, out);
            }
            Self::Data { offset, bytes } => {
                out.extend(data_header(*offset, bytes.len()));
                out.extend(*bytes);
            }
            Self::End => out.push(3),
            Self::Link { meta, name, target } => {
                out.push(4);
                emit_meta(*meta, out);
                emit_text(name, out);
                emit_text(target, out);
            }
            Self::Enter { name } => {
                out.push(5);
                emit_text(name, out);
            }
            Self::Leave { meta } => {
                out.push(6);
                emit_meta(*meta, out);
            }
            Self::Finish(totals) => {
                out.push(7);
                out.extend(totals.files.to_be_bytes());
                out.extend(totals.bytes.to_be_bytes());
            }
        }
    }
}

/// The chunk has no room for the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

/// Header of a data frame with `bytes` bytes, for callers that read the data directly into a chunk.
pub fn data_header(offset: u64, bytes: usize) -> [u8; DATA_HEADER_BYTES] {
    let bytes = u32::try_from(bytes).expect("a chunk is below 4 GiB");
    let mut header = [2; DATA_HEADER_BYTES];
    header[1..9].copy_from_slice(&offset.to_be_bytes());
    header[9..].copy_from_slice(&bytes.to_be_bytes());
    header
}

fn emit_meta(meta: Meta, out: &mut Vec<u8>) {
    out.extend(meta.mode.to_be_bytes());
    out.extend(meta.mtime_s.to_be_bytes());
    out.extend(meta.mtime_ns.to_be_bytes());
}

fn emit_text(text: &[u8], out: &mut Vec<u8>) {
    let bytes = u16::try_from(text.len()).expect("the kernel's names and targets are shorter");
    out.extend(bytes.to_be_bytes());
    out.extend(text);
}

/// Frames of a chunk, in order; ends after an error.
pub struct Frames<'chunk>(Reader<'chunk>);

impl<'chunk> Frames<'chunk> {
    /// The frames after the header of `chunk`.
    pub fn of(chunk: &'chunk [u8]) -> Self {
        Self(Reader { rest: chunk.get(CHUNK_HEADER_BYTES..).unwrap_or_default() })
    }
}

impl<'chunk> Iterator for Frames<'chunk> {
    type Item = Result<Frame<'chunk>, FrameError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.rest.is_empty() {
            return None;
        }
        let frame = self.0.frame();
        if frame.is_err() {
            self.0.rest = &[];
        }
        Some(frame)
    }
}

struct Reader<'chunk> {
    rest: &'chunk [u8],
}

impl<'chunk> Reader<'chunk> {
    fn frame(&mut self) -> Result<Frame<'chunk>, FrameError> {
        Ok(match self.array::<1>()? {
            [1] => Frame::File { meta: self.meta()?, size: self.u64()?, name: self.name()? },
            [2] => {
                let (offset, bytes) = (self.u64()?, self.u32()?);
                let bytes = self.take(bytes as usize)?;
                if i64::try_from(offset.saturating_add(bytes.len() as u64)).is_err() {
                    return Err(FrameError::Offset(offset));
                }
                Frame::Data { offset, bytes }
            }
            [3] => Frame::End,
            [4] => Frame::Link { meta: self.meta()?, name: self.name()?, target: self.text()? },
            [5] => Frame::Enter { name: self.name()? },
            [6] => Frame::Leave { meta: self.meta()? },
            [7] => Frame::Finish(Totals { files: self.u64()?, bytes: self.u64()? }),
            [kind] => return Err(FrameError::Kind(kind)),
        })
    }

    fn meta(&mut self) -> Result<Meta, FrameError> {
        let (mode, mtime_s) = (self.u32()?, self.u64()?.cast_signed());
        match self.u32()? {
            mtime_ns @ 0..1_000_000_000 => Ok(Meta { mode, mtime_s, mtime_ns }),
            mtime_ns => Err(FrameError::Nanoseconds(mtime_ns)),
        }
    }

    /// A component, or the empty name of the top entry.
    fn name(&mut self) -> Result<&'chunk [u8], FrameError> {
        let name = self.text()?;
        if !name.is_empty() {
            check_component(name)?;
        }
        Ok(name)
    }

    fn text(&mut self) -> Result<&'chunk [u8], FrameError> {
        let bytes = u16::from_be_bytes(self.array()?);
        self.take(usize::from(bytes))
    }

    fn u32(&mut self) -> Result<u32, FrameError> {
        self.array().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Result<u64, FrameError> {
        self.array().map(u64::from_be_bytes)
    }

    fn array<const BYTES: usize>(&mut self) -> Result<[u8; BYTES], FrameError> {
        let (array, rest) = self.rest.split_first_chunk().ok_or(FrameError::Truncated)?;
        self.rest = rest;
        Ok(*array)
    }

    fn take(&mut self, bytes: usize) -> Result<&'chunk [u8], FrameError> {
        let (taken, rest) = self.rest.split_at_checked(bytes).ok_or(FrameError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }
}

/// Reason why bytes are not a valid stream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A frame reaches beyond its chunk.
    #[error("a frame is cut off")]
    Truncated,
    /// No frame starts like this.
    #[error("unknown frame kind {0}")]
    Kind(u8),
    /// What follows is not said.
    #[error("invalid chunk header: state {state}, {bytes} bytes")]
    ChunkHeader {
        /// State in the header.
        state: u32,
        /// Length in the header.
        bytes: u32,
    },
    /// The nanoseconds reach a full second.
    #[error("a time has {0} nanoseconds")]
    Nanoseconds(u32),
    /// The data would exceed the largest possible file.
    #[error("data lie at offset {0}")]
    Offset(u64),
    /// A name that leads out of its directory.
    #[error(transparent)]
    Name(#[from] NameError),
}
