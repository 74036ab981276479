//! The source, read into chunks on rank 0.
//!
//! A thread of its own walks the source and fills chunks, so that reading runs ahead of sending;
//! how far is bounded by the buffers that come back to it. Entries are taken in the order of their
//! names, so equal trees give equal streams. Data are read straight into the chunk, extent by
//! extent (`SEEK_DATA`, `SEEK_HOLE`); holes cost nothing.
//!
//! Not copied: sockets, pipes and devices (told on stderr); owners, extended attributes, hard links
//! as such. A source that is a symbolic link is followed; links below it stay links, and a file or
//! directory that becomes one while it is looked at is an error: every entry is opened below its
//! directory's descriptor (`walk`), never by a path. So is a file that gets shorter, or is written,
//! while it is read; one that grows is copied as long as it was. Of a file that the kernel makes as
//! it is read (`/proc`, `/sys`) the size is what could be read; see `sizeless`.

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

/// Less room than this is left free, rather than cutting data into crumbs.
const DATA_BYTES_MIN: usize = 4096;

/// What the reader hands on.
pub enum Read {
    /// A full chunk, or the last one; its header is not filled in.
    Chunk(Vec<u8>),
    /// There are no more chunks.
    Whole {
        /// Of the frames of all chunks.
        sums: Sums,
        /// What they hold.
        totals: Totals,
    },
    /// The source cannot be read.
    Failed(SourceError),
}

/// Why the source cannot be copied.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The system said no.
    #[error("cannot read {}: {source}", .path.display())]
    Io {
        /// What was to be read.
        path: PathBuf,
        /// The answer.
        source: io::Error,
    },
    /// The file lost bytes while it was read.
    #[error("{}: got shorter while it was read", .0.display())]
    GotShorter(PathBuf),
    /// The file was written while it was read: the copy would be of no one moment.
    #[error("{}: was changed while it was read", .0.display())]
    Changed(PathBuf),
    /// The directory lies elsewhere than when the walk went into it.
    #[error("{}: was moved while it was read", .0.display())]
    Moved(PathBuf),
    /// The size that the system tells is not what can be read.
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
    /// The system tells no size, and reading meets no end.
    #[error(
        "{}: has no size, and more than {} can be read; copy it into a file first",
        .path.display(), format_bytes(*.bytes_max as u64)
    )]
    Endless {
        /// The file.
        path: PathBuf,
        /// Most that is read of such a file.
        bytes_max: usize,
    },
    /// Neither a file nor a directory.
    #[error("{}: neither a file nor a directory", .0.display())]
    Special(PathBuf),
    /// Nobody takes chunks any more.
    #[error("sending has ended")]
    Stopped,
}

impl SourceError {
    /// Turns the system's answer for `path` into an error.
    pub fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| match source.kind() {
            ErrorKind::UnexpectedEof => Self::GotShorter(path),
            _ => Self::Io { path, source },
        }
    }
}

/// What the source is, and how many bytes of data a file has; a directory is not counted, as that
/// would take a walk.
pub fn inspect(path: &Path) -> Result<(Kind, u64), SourceError> {
    let metadata = fs::metadata(path).map_err(SourceError::io(path))?;
    match metadata.file_type() {
        kind if kind.is_file() => Ok((Kind::File, data_bytes(&metadata))),
        kind if kind.is_dir() => Ok((Kind::Directory, 0)),
        _ => Err(SourceError::Special(path.to_owned())),
    }
}

/// What a copy must not replace: the source, and the directories above it, innermost first.
pub fn identities(path: &Path) -> Vec<String> {
    let Ok(path) = path.canonicalize() else { return Vec::new() };
    let found = path.ancestors().filter_map(|path| fs::metadata(path).ok());
    found.map(|found| staging::identity(&found)).collect()
}

/// Bytes of data below the directory `path`, as far as it can be read; for a progress bar.
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

/// Allocated blocks can be more than the size (the last block) or less (holes).
fn data_bytes(metadata: &Metadata) -> u64 {
    metadata.len().min(metadata.blocks().saturating_mul(512))
}

/// Reads the source to its end; `chunks` gets what there is to send, `free` gives buffers of equal
/// capacity. Runs in a thread of its own.
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
    // Nobody listens if sending has failed; that is told elsewhere.
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

    /// A directory and all below it, without recursion: trees may be deeper than a stack.
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

    /// A file that has been opened, if it is one.
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

    /// What `file` holds within the size that `told` gives.
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
            // Beyond its new end it looks like a hole.
            Ordering::Less => return Err(SourceError::GotShorter(path.to_owned())),
            Ordering::Equal if written(&now) != written(told) => {
                return Err(SourceError::Changed(path.to_owned()));
            }
            // What has been appended was not there when the copy began.
            Ordering::Equal | Ordering::Greater => {}
        }
        sizeless::check_end(file, told, path)
    }

    /// The bytes of a range; `fill` gives those from an offset on.
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

    /// What comes of a file of data, a hole and data again, when `harm` is done to it while its
    /// first chunk is on its way.
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
                        // The last chunk leaves nobody who takes one.
                        let _ = give.send(chunk);
                    }
                    last => return last,
                }
            }
        })
    }

    #[test]
    fn a_file_that_is_cut_at_a_hole_while_it_is_read_is_an_error() {
        let cut = |file: &File| file.set_len(HEAD_BYTES as u64).unwrap();
        let last = last_word(cut);
        assert!(matches!(last, Read::Failed(SourceError::GotShorter(_))));
    }

    #[test]
    fn a_file_that_is_written_while_it_is_read_is_an_error() {
        let write = |file: &File| {
            file.write_at(b"!", 0).unwrap();
            // The clock of files may be slower than this test.
            file.set_modified(std::time::UNIX_EPOCH).unwrap();
        };
        assert!(matches!(last_word(write), Read::Failed(SourceError::Changed(_))));
    }

    #[test]
    fn a_file_that_grows_while_it_is_read_is_copied_as_long_as_it_was() {
        let Read::Whole { totals, .. } = last_word(|file| file.set_len(4 << 20).unwrap()) else {
            panic!("not copied")
        };
        assert_eq!(totals.files, 1);
    }
}
