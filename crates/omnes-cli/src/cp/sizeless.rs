//! Files whose contents the kernel generates while they are read, as in `/proc` and `/sys`.
//!
//! Their size is reported as zero or as one page, regardless of the contents, and they take no
//! blocks. So such a file is read to its end before its size is trusted. A hole of that size looks
//! the same, but as many bytes can be read from it as its size says. A file whose size has changed
//! meanwhile is left to the code that reads by size, which handles both cases.

use super::source::SourceError;
use std::fs::{File, Metadata};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// Size that `/sys` reports for each file.
const TOLD_BYTES_MAX: u64 = 4096;
/// Maximum read from a file without a size: some, such as `pagemap`, are almost endless.
const READ_BYTES_MAX: usize = 16 << 20;
const PART_BYTES: usize = 64 << 10;

/// Contents of `file` if its size cannot be trusted; `None` if it can.
///
/// Errors: the file cannot be read, or holds more than a rank keeps in memory.
pub fn contents(file: &File, told: &Metadata, path: &Path) -> Result<Option<Vec<u8>>, SourceError> {
    if told.blocks() > 0 || told.len() > TOLD_BYTES_MAX {
        return Ok(None);
    }
    let bytes = read_to_end(file, path)?;
    if bytes.len() as u64 == told.len() || has_changed(file, told, path)? {
        return Ok(None);
    }
    Ok(Some(bytes))
}

/// Reads in equal parts: some files are read in units of more than a byte.
fn read_to_end(mut file: &File, path: &Path) -> Result<Vec<u8>, SourceError> {
    let (mut bytes, mut part) = (Vec::new(), vec![0; PART_BYTES]);
    loop {
        match file.read(&mut part) {
            Ok(0) => return Ok(bytes),
            Ok(length) => bytes.extend_from_slice(&part[..length]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(SourceError::io(path)(error)),
        }
        if bytes.len() > READ_BYTES_MAX {
            return Err(SourceError::Endless { path: path.to_owned(), bytes_max: READ_BYTES_MAX });
        }
    }
}

/// Errors if more can be read than the size says, although the size is unchanged: a copy by size
/// would be truncated.
pub fn check_end(file: &File, told: &Metadata, path: &Path) -> Result<(), SourceError> {
    let more = file.read_at(&mut [0], told.len()).map_err(SourceError::io(path))?;
    if more > 0 && !has_changed(file, told, path)? {
        return Err(SourceError::LongerThanTold { path: path.to_owned(), told: told.len() });
    }
    Ok(())
}

fn has_changed(file: &File, told: &Metadata, path: &Path) -> Result<bool, SourceError> {
    Ok(file.metadata().map_err(SourceError::io(path))?.len() != told.len())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn contents_of(path: &Path) -> Result<Option<Vec<u8>>, SourceError> {
        let file = File::open(path).unwrap();
        contents(&file, &file.metadata().unwrap(), path)
    }

    #[test]
    fn procfs_and_sysfs_files_are_read_to_their_end() {
        for path in ["/proc/version", "/proc/sys/kernel/ostype", "/sys/class/net/lo/mtu"] {
            let path = Path::new(path);
            if path.is_file() {
                assert_eq!(contents_of(path).unwrap(), Some(std::fs::read(path).unwrap()));
            }
        }
    }

    #[test]
    fn endless_file_is_rejected_by_name() {
        let error = contents_of(Path::new("/proc/self/pagemap")).unwrap_err().to_string();
        assert!(error.starts_with("/proc/self/pagemap: "), "{error}");
        assert!(error.contains("16 MiB"), "{error}");
    }

    #[test]
    fn sizes_of_empty_and_sparse_files_are_trusted() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        let file = File::create(&path).unwrap();
        assert_eq!(contents_of(&path).unwrap(), None);
        file.set_len(4096).unwrap();
        assert_eq!(contents_of(&path).unwrap(), None);
    }
}
