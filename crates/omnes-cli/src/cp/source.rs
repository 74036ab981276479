//! The source, read into chunks on rank 0.
//!
//! A thread of its own walks the source and fills chunks, so that reading runs ahead of sending, as
//! far as the buffers returned to it allow. Entries are taken in the order of their names, so equal
//! trees give equal streams. Data are read directly into the chunk, extent by extent (`SEEK_DATA`,
//! `SEEK_HOLE`); holes cost nothing.
//!
//! Not copied: sockets, pipes and devices (reported on stderr); owners, extended attributes, hard
//! links as such. A source that is a symbolic link is followed; links below it stay links, and a
//! file or directory that becomes a link while it is examined is an error: every entry is opened
//! below its directory's descriptor (`walk`), never by a path. A file that gets shorter, or is
//! written, while it is read is also an error; a file that grows is copied up to its original
//! length. For a file whose contents the kernel generates (`/proc`, `/sys`), the size is the number
//! of bytes read; see `sizeless`.

use super::checksum::{Checksum, Sums};
use super::frame::{CHUNK_HEADER_BYTES, DATA_HEADER_BYTES, Frame, Meta, Totals, data_header};
use super::staging::{self, Kind};
use super::walk::{self, Walk};
use super::{sizeless, sys};
use crate::units::format_bytes;
use rustix::fs::FileType;
use std::cmp::Ordering;
use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender};

/// If less room is left in a chunk, it stays free, rather than data being split into tiny pieces.
const DATA_BYTES_MIN: usize = 4096;

/// Output of the reader.
pub enum Read {
    /// A full chunk, or the last one; its header is not filled in.
    Chunk(Vec<u8>),
    /// There are no more chunks.
    Whole {
        /// Checksums of the frames of all chunks.
        sums: Sums,
        /// Totals of the frames.
        totals: Totals,
    },
    /// The source cannot be read.
    Failed(SourceError),
}

/// Reason why the source cannot be copied.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// A system call failed.
    #[error("cannot read {}: {source}", .path.display())]
    Io {
        /// Path that was to be read.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file lost bytes while it was read.
    #[error("{}: got shorter while it was read", .0.display())]
    GotShorter(PathBuf),
    /// The file was written while it was read: the copy would not be of any one moment.
    #[error("{}: was changed while it was read", .0.display())]
    Changed(PathBuf),
    /// The directory is no longer where it was when the walk entered it.
    #[error("{}: was moved while it was read", .0.display())]
    Moved(PathBuf),
    /// The size that the system reports is not the number of readable bytes.
    #[error(
        "{}: holds more than the {told} bytes that the system reports; copy it into a file with \
         cat and that file from there",
        .path.display()
    )]
    LongerThanTold {
        /// The file.
        path: PathBuf,
        /// Its size.
        told: u64,
    },
    /// The system reports no size, and reading does not reach an end.
    #[error(
        "{}: has no size, and more than {} can be read; copy it into a file first",
        .path.display(), format_bytes(*.bytes_max as u64)
    )]
    Endless {
        /// The file.
        path: PathBuf,
        /// Maximum read from such a file.
        bytes_max: usize,
    },
    /// Neither a file nor a directory.
    #[error("{}: neither a file nor a directory", .0.display())]
    Special(PathBuf),
    /// Chunks are no longer accepted.
    #[error("sending has ended")]
    Stopped,
}

impl SourceError {
    /// Converts the system's error for `path`.
    pub fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| match source.kind() {
            ErrorKind::UnexpectedEof => Self::GotShorter(path),
            _ => Self::Io { path, source },
        }
    }
}

/// Kind of the source, and the size of a file's data; a directory is not counted, because that
/// would take a walk.
pub fn inspect(path: &Path) -> Result<(Kind, u64), SourceError> {
    let metadata = fs::metadata(path).map_err(SourceError::io(path))?;
    match metadata.file_type() {
        kind if kind.is_file() => Ok((Kind::File, data_bytes(&metadata))),
        kind if kind.is_dir() => Ok((Kind::Directory, 0)),
        _ => Err(SourceError::Special(path.to_owned())),
    }
}

/// Identities that a copy must not replace: the source as it is named, which may be a link; the
/// source itself; and the directories above it, innermost first.
pub fn identities(path: &Path) -> Vec<String> {
    let Ok(target) = path.canonicalize() else { return Vec::new() };
    let above = target.ancestors().filter_map(|path| fs::metadata(path).ok());
    let found = path.symlink_metadata().into_iter().chain(above);
    found.map(|found| staging::identity(&found)).collect()
}

/// Size of the data below the directory `path`, as far as it can be read; for a progress bar.
pub fn count_bytes(path: &Path) -> u64 {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|entry| count_entry(&entry.path())).sum()
}

fn count_entry(path: &Path) -> u64 {
    let Ok(metadata) = fs::symlink_metadata(path) else { return 0 };
    match metadata.file_type() {
        kind if kind.is_file() => data_bytes(&metadata),
        kind if kind.is_dir() => count_bytes(path),
        _ => 0,
    }
}

/// Allocated blocks can exceed the size (the last block) or fall short of it (holes).
fn data_bytes(metadata: &Metadata) -> u64 {
    metadata.len().min(metadata.blocks().saturating_mul(512))
}

/// Reads the source to its end; sends chunks and the result to `chunks`, takes buffers of equal
/// capacity from `free`. Runs in a thread of its own.
pub fn read(path: &Path, free: Receiver<Vec<u8>>, chunks: &Sender<Read>) {
    let mut packer = Packer {
        free,
        chunks,
        chunk: Vec::new(),
        checksum: Checksum::default(),
        totals: Totals::default(),
    };
    let last = match packer.pack(path) {
        Ok(()) => Read::Whole { sums: packer.checksum.sums(), totals: packer.totals },
        Err(error) => Read::Failed(error),
    };
    // If sending has failed, nobody receives this; the failure is reported elsewhere.
    let _ = chunks.send(last);
}

/// Fills chunks.
struct Packer<'chunks> {
    free: Receiver<Vec<u8>>,
    chunks: &'chunks Sender<Read>,
    /// Capacity 0 before the first buffer is taken.
    chunk: Vec<u8>,
    checksum: Checksum,
    totals: Totals,
}

impl Packer<'_> {
    fn pack(&mut self, path: &Path) -> Result<(), SourceError> {
        let top = walk::open_top(path).map_err(SourceError::io(path))?;
        let metadata = top.metadata().map_err(SourceError::io(path))?;
        self.take_buffer()?;
        if metadata.is_dir() {
            self.pack_tree(path, top)?;
        } else {
            self.pack_file(top, path, b"")?;
        }
        self.put(&Frame::Finish(self.totals))?;
        self.flush()
    }

    /// Packs a directory and everything below it, without recursion: trees may be deeper than a
    /// stack.
    fn pack_tree(&mut self, path: &Path, top: File) -> Result<(), SourceError> {
        self.put(&Frame::Enter { name: b"" })?;
        let mut walk = Walk::start(path, top)?;
        loop {
            let Some(name) = walk.next_name() else {
                self.put(&Frame::Leave { meta: meta_of(&walk.metadata()?) })?;
                if !walk.leave()? {
                    return Ok(());
                }
                continue;
            };
            match walk.kind_of(&name)? {
                FileType::Directory => {
                    walk.enter(&name)?;
                    self.put(&Frame::Enter { name: name.to_bytes() })?;
                }
                FileType::RegularFile => {
                    let file = walk.open_file(&name)?;
                    self.pack_file(file, &walk.path_of(&name), name.to_bytes())?;
                }
                FileType::Symlink => {
                    let (metadata, target) = walk.read_link(&name)?;
                    let (meta, target) = (meta_of(&metadata), target.to_bytes());
                    self.put(&Frame::Link { meta, name: name.to_bytes(), target })?;
                }
                _ => crate::stderr::notice(format_args!(
                    "{}: neither file, directory nor link; left out",
                    walk.path_of(&name).display()
                )),
            }
        }
    }

    /// Packs an opened file, if it is a regular file.
    fn pack_file(&mut self, file: File, path: &Path, name: &[u8]) -> Result<(), SourceError> {
        let metadata = file.metadata().map_err(SourceError::io(path))?;
        if !metadata.is_file() {
            return Err(SourceError::Special(path.to_owned()));
        }
        let meta = meta_of(&metadata);
        if let Some(bytes) = sizeless::contents(&file, &metadata, path)? {
            let size = bytes.len() as u64;
            self.put(&Frame::File { meta, size, name })?;
            self.put_data(0..size, |part, offset| {
                part.copy_from_slice(&bytes[offset as usize..][..part.len()]);
                Ok(())
            })?;
        } else {
            self.put(&Frame::File { meta, size: metadata.len(), name })?;
            self.put_extents(&file, &metadata, path)?;
        }
        self.totals.files += 1;
        self.put(&Frame::End)
    }

    /// Packs the contents of `file` within the size in `told`.
    fn put_extents(
        &mut self,
        file: &File,
        told: &Metadata,
        path: &Path,
    ) -> Result<(), SourceError> {
        let (size, mut offset) = (told.len(), 0);
        while let Some((start, end)) =
            sys::next_data(file, offset, size).map_err(SourceError::io(path))?
        {
            self.put_data(start..end, |part, offset| {
                file.read_exact_at(part, offset).map_err(SourceError::io(path))
            })?;
            offset = end;
        }
        let now = file.metadata().map_err(SourceError::io(path))?;
        let written = |of: &Metadata| (of.mtime(), of.mtime_nsec());
        match now.len().cmp(&size) {
            // Beyond its new end the file looks like a hole.
            Ordering::Less => return Err(SourceError::GotShorter(path.to_owned())),
            Ordering::Equal if written(&now) != written(told) => {
                return Err(SourceError::Changed(path.to_owned()));
            }
            // Appended data did not exist when the copy started.
            Ordering::Equal | Ordering::Greater => {}
        }
        sizeless::check_end(file, told, path)
    }

    /// Packs the bytes of a range; `fill` reads those at an offset.
    fn put_data(
        &mut self,
        range: Range<u64>,
        fill: impl Fn(&mut [u8], u64) -> Result<(), SourceError>,
    ) -> Result<(), SourceError> {
        let mut offset = range.start;
        while offset < range.end {
            let room = self.chunk.capacity() - self.chunk.len();
            if room < DATA_HEADER_BYTES + DATA_BYTES_MIN {
                self.flush()?;
                self.take_buffer()?;
                continue;
            }
            let left = usize::try_from(range.end - offset).unwrap_or(usize::MAX);
            let bytes = left.min(room - DATA_HEADER_BYTES);
            self.chunk.extend(data_header(offset, bytes));
            let data = self.chunk.len();
            self.chunk.resize(data + bytes, 0);
            fill(&mut self.chunk[data..], offset)?;
            self.checksum.update(&Frame::Data { offset, bytes: &self.chunk[data..] });
            offset += bytes as u64;
            self.totals.bytes += bytes as u64;
        }
        Ok(())
    }

    fn put(&mut self, frame: &Frame<'_>) -> Result<(), SourceError> {
        self.checksum.update(frame);
        if frame.try_emit(&mut self.chunk).is_err() {
            self.flush()?;
            self.take_buffer()?;
            frame
                .try_emit(&mut self.chunk)
                .expect("an empty chunk has room for any frame but data");
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), SourceError> {
        let chunk = std::mem::take(&mut self.chunk);
        self.chunks.send(Read::Chunk(chunk)).map_err(|_| SourceError::Stopped)
    }

    fn take_buffer(&mut self) -> Result<(), SourceError> {
        self.chunk = self.free.recv().map_err(|_| SourceError::Stopped)?;
        self.chunk.clear();
        self.chunk.resize(CHUNK_HEADER_BYTES, 0);
        Ok(())
    }
}

fn meta_of(metadata: &Metadata) -> Meta {
    Meta {
        mode: metadata.mode(),
        mtime_s: metadata.mtime(),
        mtime_ns: u32::try_from(metadata.mtime_nsec()).expect("below a billion"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::sync::mpsc::channel;

    const CHUNK_BYTES: usize = 32 << 10;
    const HEAD_BYTES: usize = 2 * CHUNK_BYTES;

    /// Outcome of reading a file of data, a hole and data again, if `harm` is done to it while its
    /// first chunk is being sent.
    fn last_word(harm: impl FnOnce(&File)) -> Read {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        let file = File::options().write(true).create_new(true).open(&path).unwrap();
        file.write_all_at(&[7; HEAD_BYTES], 0).unwrap();
        file.write_all_at(&[8; 4096], 1 << 20).unwrap();
        let (give, free) = channel();
        let (chunks, take) = channel();
        give.send(Vec::with_capacity(CHUNK_BYTES)).unwrap();
        let mut harm = Some(harm);
        std::thread::scope(|scope| {
            scope.spawn(|| read(&path, free, &chunks));
            loop {
                match take.recv().unwrap() {
                    Read::Chunk(chunk) => {
                        if let Some(harm) = harm.take() {
                            harm(&file);
                        }
                        // After the last chunk there is no receiver any more.
                        let _ = give.send(chunk);
                    }
                    last => return last,
                }
            }
        })
    }

    #[test]
    fn file_truncated_at_a_hole_while_being_read_is_an_error() {
        let cut = |file: &File| file.set_len(HEAD_BYTES as u64).unwrap();
        let last = last_word(cut);
        assert!(matches!(last, Read::Failed(SourceError::GotShorter(_))));
    }

    #[test]
    fn file_modified_while_being_read_is_an_error() {
        let write = |file: &File| {
            file.write_at(b"!", 0).unwrap();
            // The clock of file timestamps may be coarser than this test.
            file.set_modified(std::time::UNIX_EPOCH).unwrap();
        };
        assert!(matches!(last_word(write), Read::Failed(SourceError::Changed(_))));
    }

    #[test]
    fn file_that_grows_while_being_read_is_copied_at_its_initial_length() {
        let Read::Whole { totals, .. } = last_word(|file| file.set_len(4 << 20).unwrap()) else {
            panic!("not copied")
        };
        assert_eq!(totals.files, 1);
    }
}
