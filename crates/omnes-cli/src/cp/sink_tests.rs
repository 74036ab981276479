//! A tree read into chunks and written from them again, and invalid streams.

#![allow(clippy::unwrap_used)]
use super::checksum::{Checksum, Sums};
use super::frame::{CHUNK_BYTES_MIN, CHUNK_HEADER_BYTES, Frame, Meta, Totals};
use super::sink::{ReadBack, Sink, SinkError};
use super::source::{self, Read};
use super::staging::{Destination, Durability, Existing, Kind, Staging, StagingError};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use tempfile::TempDir;

const META: Meta = Meta { mode: 0o640, mtime_s: 1_000_000_000, mtime_ns: 5 };

fn staging(dest: &Path, kind: Kind) -> Staging {
    open(dest, kind, Existing::Keep).unwrap()
}

fn open(dest: &Path, kind: Kind, existing: Existing) -> Result<Staging, StagingError> {
    Staging::open(Destination::look_at(dest.to_owned()), kind, 0, existing)
}

fn sink(dest: &Path, kind: Kind) -> Sink {
    // Reading back syncs each file, which is slow for a tree of many files.
    let read_back = if kind == Kind::File { ReadBack::EveryFile } else { ReadBack::Off };
    Sink::new(staging(dest, kind), read_back)
}

/// All chunks of `path`, and the last result of reading.
fn read_all(path: &Path) -> (Vec<Vec<u8>>, Read) {
    let (free, buffers) = mpsc::channel();
    let (chunks, read) = mpsc::channel();
    free.send(Vec::with_capacity(CHUNK_BYTES_MIN)).unwrap();
    let path = path.to_owned();
    let reader = std::thread::spawn(move || source::read(&path, buffers, &chunks));
    let mut all = Vec::new();
    for read in read {
        match read {
            Read::Chunk(chunk) => {
                all.push(chunk);
                // The reader may have ended.
                let _ = free.send(Vec::with_capacity(CHUNK_BYTES_MIN));
            }
            last => {
                reader.join().unwrap();
                return (all, last);
            }
        }
    }
    panic!("reading has no end")
}

fn copy(source: &Path, dest: &Path, kind: Kind) -> Totals {
    let (chunks, last) = read_all(source);
    let Read::Whole { sums, totals } = last else { panic!("cannot read") };
    let mut sink = sink(dest, kind);
    for chunk in &chunks {
        assert!(chunk.len() <= CHUNK_BYTES_MIN);
        sink.apply(chunk).unwrap();
    }
    assert!(fs::symlink_metadata(dest).is_err(), "nothing is seen before the commit");
    sink.finish(&sums).unwrap().commit(Durability::Lazy).unwrap();
    totals
}

fn chunk_of(frames: &[Frame<'_>]) -> Vec<u8> {
    let mut chunk = Vec::with_capacity(CHUNK_BYTES_MIN);
    chunk.resize(CHUNK_HEADER_BYTES, 0);
    frames.iter().for_each(|frame| frame.try_emit(&mut chunk).unwrap());
    chunk
}

fn sums_of(frames: &[Frame<'_>]) -> Sums {
    let mut checksum = Checksum::default();
    frames.iter().for_each(|frame| checksum.update(frame));
    checksum.sums()
}

fn names_in(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap().map(Result::unwrap);
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn multi_chunk_file_is_copied_with_mode_and_mtime() {
    let directory = TempDir::new().unwrap();
    let (source, dest) = (directory.path().join("a"), directory.path().join("new/deep/b"));
    let data: Vec<u8> = (0..3 * CHUNK_BYTES_MIN + 17).map(|at| (at % 251) as u8).collect();
    fs::write(&source, &data).unwrap();
    fs::set_permissions(&source, fs::Permissions::from_mode(0o4751)).unwrap();
    let totals = copy(&source, &dest, Kind::File);
    assert_eq!(totals, Totals { files: 1, bytes: data.len() as u64 });
    assert!(fs::read(&dest).unwrap() == data);
    let (old, new) = (fs::metadata(&source).unwrap(), fs::metadata(&dest).unwrap());
    assert_eq!(new.mode() & 0o7777, 0o751, "without set-user-ID");
    assert_eq!((new.mtime(), new.mtime_nsec()), (old.mtime(), old.mtime_nsec()));
    assert_eq!(names_in(&directory.path().join("new/deep")), ["b"]);
}

#[test]
fn tree_is_copied_with_links_empty_and_unreadable_directories() {
    let directory = TempDir::new().unwrap();
    let (source, dest) = (directory.path().join("a"), directory.path().join("b"));
    fs::create_dir_all(source.join("x/y/empty")).unwrap();
    fs::write(source.join("x/file"), "text").unwrap();
    fs::write(source.join("x/nothing"), "").unwrap();
    for file in 0..2000 {
        fs::write(source.join(format!("x/y/{file}")), format!("{file}").repeat(100)).unwrap();
    }
    symlink("../outside", source.join("x/link")).unwrap();
    fs::set_permissions(source.join("x/y"), fs::Permissions::from_mode(0o555)).unwrap();
    let totals = copy(&source, &dest, Kind::Directory);
    assert_eq!(totals.files, 2002);
    assert_eq!(names_in(&dest.join("x")), ["file", "link", "nothing", "y"]);
    assert_eq!(names_in(&source.join("x/y")), names_in(&dest.join("x/y")));
    assert_eq!(fs::read_to_string(dest.join("x/y/1999")).unwrap(), "1999".repeat(100));
    assert_eq!(fs::read_link(dest.join("x/link")).unwrap(), Path::new("../outside"));
    for path in ["", "x", "x/y", "x/y/empty", "x/file", "x/link"] {
        let old = fs::symlink_metadata(source.join(path)).unwrap();
        let new = fs::symlink_metadata(dest.join(path)).unwrap();
        assert_eq!((new.mode(), new.mtime()), (old.mode(), old.mtime()), "{path}");
    }
    super::staging::remove_tree(&source);
    super::staging::remove_tree(&dest);
    assert_eq!(names_in(directory.path()), [""; 0]);
}

#[test]
fn holes_of_sparse_files_are_preserved() {
    let directory = TempDir::new().unwrap();
    let (source, dest) = (directory.path().join("a"), directory.path().join("b"));
    let size = 1 << 30;
    let file = File::create(&source).unwrap();
    file.set_len(size).unwrap();
    file.write_all_at(b"in the middle", 300 << 20).unwrap();
    if file.metadata().unwrap().blocks() * 512 > 1 << 20 {
        eprintln!("skipped: needs a file system with holes");
        return;
    }
    let totals = copy(&source, &dest, Kind::File);
    assert!(totals.bytes < 1 << 20, "{totals:?}");
    let copied = fs::metadata(&dest).unwrap();
    assert_eq!(copied.len(), size);
    assert!(copied.blocks() * 512 < 1 << 20, "{} blocks", copied.blocks());
    let mut middle = [0; 14];
    File::open(&dest).unwrap().read_exact_at(&mut middle, 300 << 20).unwrap();
    assert_eq!(&middle, b"in the middle\0");
}

#[test]
fn dropped_copies_leave_no_files_in_either_order() {
    let directory = TempDir::new().unwrap();
    for is_file_first in [true, false] {
        let look = |name| Destination::look_at(directory.path().join("new").join(name));
        let (file, tree) = (look("file"), look("deep/tree"));
        let open = |dest, kind| {
            let staging = Staging::open(dest, kind, 0, Existing::Keep).unwrap();
            Sink::new(staging, ReadBack::Off)
        };
        let (mut file, mut tree) = (open(file, Kind::File), open(tree, Kind::Directory));
        file.apply(&chunk_of(&[Frame::File { meta: META, size: 4, name: b"" }])).unwrap();
        let closed = Frame::Leave { meta: Meta { mode: 0o500, ..META } };
        let (top, sub) = (Frame::Enter { name: b"" }, Frame::Enter { name: b"sub" });
        tree.apply(&chunk_of(&[top, sub, sub, closed, closed])).unwrap();
        assert_eq!(names_in(directory.path()), ["new"]);
        if is_file_first {
            drop((file, tree))
        } else {
            drop((tree, file))
        }
        assert_eq!(names_in(directory.path()), [""; 0]);
    }
}

#[test]
fn existing_destination_is_kept_unless_replacement_is_allowed() {
    let directory = TempDir::new().unwrap();
    let (file, tree) = (directory.path().join("file"), directory.path().join("tree"));
    fs::write(&file, "old").unwrap();
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("old"), "").unwrap();
    let refused = open(&file, Kind::File, Existing::Keep).unwrap_err();
    assert!(matches!(refused, StagingError::Exists(_)), "{refused}");
    for (path, kind) in [(&file, Kind::Directory), (&tree, Kind::File)] {
        let refused = open(path, kind, Existing::Replace).unwrap_err();
        assert!(matches!(refused, StagingError::OtherKind { .. }), "{refused}");
    }
    open(&file, Kind::File, Existing::Replace).unwrap().commit(Durability::Synced).unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), "");
    open(&tree, Kind::Directory, Existing::Replace).unwrap().commit(Durability::Lazy).unwrap();
    assert_eq!(names_in(&tree), [""; 0]);
    assert_eq!(names_in(directory.path()), ["file", "tree"]);
}

#[test]
fn special_files_are_never_replaced_by_a_file() {
    let directory = TempDir::new().unwrap();
    let socket = directory.path().join("socket");
    let _listener = UnixListener::bind(&socket).unwrap();
    let fifo = directory.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    for path in [&socket, &fifo, Path::new("/dev/null")] {
        for existing in [Existing::Keep, Existing::Replace] {
            let refused = open(path, Kind::File, existing).unwrap_err();
            assert!(matches!(refused, StagingError::OtherKind { .. }), "{refused}");
        }
    }
    assert_eq!(names_in(directory.path()), ["fifo", "socket"]);
    // The link is replaced, not its target.
    let link = directory.path().join("link");
    symlink("fifo", &link).unwrap();
    open(&link, Kind::File, Existing::Replace).unwrap().commit(Durability::Lazy).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_file());
}

/// Makes the kernel return EIO for each `close` of this thread, as it does if a file system could
/// not write data that it had accepted; false if the kernel does not accept filters.
fn fail_each_close() -> bool {
    let number = u32::try_from(libc::SYS_close).unwrap();
    let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut filter = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0), // number of the call
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, number),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EIO as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: 4, filter: filter.as_mut_ptr() };
    // SAFETY: the kernel copies the filter, which lives until then and counts for this thread.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    }
}

#[test]
fn write_error_reported_only_by_close_fails_the_copy() {
    let directory = TempDir::new().unwrap();
    for kind in [Kind::File, Kind::Directory] {
        let dest = directory.path().join(format!("{kind:?}"));
        let name: &[u8] = if kind == Kind::File { b"" } else { b"inside" };
        let file = Frame::File { meta: META, size: 4, name };
        let data = Frame::Data { offset: 0, bytes: b"data" };
        let mut sink = Sink::new(staging(&dest, kind), ReadBack::Off);
        if kind == Kind::Directory {
            sink.apply(&chunk_of(&[Frame::Enter { name: b"" }])).unwrap();
        }
        sink.apply(&chunk_of(&[file, data])).unwrap();
        let ended = std::thread::scope(|scope| {
            let end = || fail_each_close().then(|| sink.apply(&chunk_of(&[Frame::End])));
            scope.spawn(end).join().unwrap()
        });
        let Some(ended) = ended else {
            eprintln!("skipped: needs seccomp");
            return;
        };
        let told = ended.unwrap_err().to_string();
        assert!(told.starts_with("cannot write ") && told.contains("Input/output"), "{told}");
    }
}

#[test]
fn mount_point_is_rejected_when_the_destination_is_opened() {
    let refused = open(Path::new("/proc"), Kind::Directory, Existing::Replace).unwrap_err();
    assert_eq!(refused.to_string(), "/proc: is a mount point, which cannot be replaced");
}

#[test]
fn destination_created_during_the_copy_is_kept() {
    let directory = TempDir::new().unwrap();
    for kind in [Kind::File, Kind::Directory] {
        let dest = directory.path().join(format!("{kind:?}"));
        let staging = staging(&dest, kind);
        fs::write(&dest, "other").unwrap();
        let refused = staging.commit(Durability::Lazy).unwrap_err();
        assert!(matches!(refused, StagingError::Exists(_)), "{refused}");
        assert_eq!(fs::read_to_string(&dest).unwrap(), "other");
    }
    assert_eq!(names_in(directory.path()), ["Directory", "File"]);
}

#[test]
fn copy_larger_than_the_free_space_is_rejected_up_front() {
    let directory = TempDir::new().unwrap();
    let dest = directory.path().join("new/file");
    let dest = Destination::look_at(dest);
    let refused = Staging::open(dest, Kind::File, 1 << 60, Existing::Keep).unwrap_err();
    assert!(matches!(refused, StagingError::NoSpace { .. }), "{refused}");
    assert_eq!(names_in(directory.path()), [""; 0]);
}

#[test]
fn out_of_sequence_frames_are_rejected() {
    let file = Frame::File { meta: META, size: 4, name: b"" };
    let entry = Frame::File { meta: META, size: 4, name: b"f" };
    let data = Frame::Data { offset: 2, bytes: b"abc" };
    let (top, sub) = (Frame::Enter { name: b"" }, Frame::Enter { name: b"s" });
    let link = Frame::Link { meta: META, name: b"s", target: b"/etc" };
    let leave = Frame::Leave { meta: META };
    let finish = Frame::Finish(Totals::default());
    let bad: [(Kind, &[Frame<'_>]); 14] = [
        (Kind::File, &[top]),
        (Kind::File, &[entry]),
        (Kind::File, &[link]),
        (Kind::File, &[Frame::End]),
        (Kind::File, &[data]),
        (Kind::File, &[leave]),
        (Kind::File, &[finish]),
        (Kind::File, &[file, data]),
        (Kind::File, &[file, file]),
        (Kind::File, &[file, Frame::End, file]),
        (Kind::Directory, &[file]),
        (Kind::Directory, &[top, top]),
        (Kind::Directory, &[top, leave, sub]),
        (Kind::Directory, &[top, entry, sub]),
    ];
    let directory = TempDir::new().unwrap();
    for (kind, frames) in bad {
        let result = sink(&directory.path().join("x"), kind).apply(&chunk_of(frames));
        assert!(matches!(result, Err(SinkError::OutOfPlace(_))), "{frames:?}: {result:?}");
    }
    let through_a_link = sink(&directory.path().join("x"), Kind::Directory)
        .apply(&chunk_of(&[top, link, sub, entry]))
        .unwrap_err();
    assert!(through_a_link.to_string().contains("File exists"), "{through_a_link}");
    assert_eq!(names_in(directory.path()), [""; 0]);
}

#[test]
fn corrupted_or_truncated_stream_fails_the_copy() {
    let directory = TempDir::new().unwrap();
    let dest = directory.path().join("x");
    let frames = [
        Frame::File { meta: META, size: 4, name: b"" },
        Frame::Data { offset: 0, bytes: b"abcd" },
        Frame::End,
        Frame::Finish(Totals { files: 1, bytes: 4 }),
    ];
    let good = chunk_of(&frames);
    let sums = sums_of(&frames);
    let mut damaged = good.clone();
    let at = damaged.windows(4).position(|bytes| bytes == b"abcd").unwrap();
    damaged[at] ^= 1;
    let mut sink_of_damaged = sink(&dest, Kind::File);
    sink_of_damaged.apply(&damaged).unwrap();
    let refused = sink_of_damaged.finish(&sums).unwrap_err();
    assert!(refused.to_string().contains("the contents arrived damaged"), "{refused}");

    let cut = chunk_of(&frames[..3]);
    let mut sink_of_cut = sink(&dest, Kind::File);
    sink_of_cut.apply(&cut).unwrap();
    let refused = sink_of_cut.finish(&sums_of(&frames[..3])).unwrap_err();
    assert!(matches!(refused, SinkError::Unfinished), "{refused}");
    assert_eq!(names_in(directory.path()), [""; 0]);
}

#[test]
fn unreadable_source_is_named() {
    let directory = TempDir::new().unwrap();
    let (_, last) = read_all(&directory.path().join("absent"));
    let Read::Failed(error) = last else { panic!("read what is not there") };
    assert!(error.to_string().contains("absent: No such file"), "{error}");
    let special = source::inspect(Path::new("/dev/null")).unwrap_err();
    assert_eq!(special.to_string(), "/dev/null: neither a file nor a directory");
}

#[test]
fn destinations_are_equal_only_for_the_same_name_in_the_same_directory() {
    let directory = TempDir::new().unwrap();
    fs::create_dir(directory.path().join("sub")).unwrap();
    symlink("sub", directory.path().join("link")).unwrap();
    let place = |path: &str| staging(&directory.path().join(path), Kind::File).place().unwrap();
    assert_eq!(place("sub/a"), place("link/a"));
    assert_ne!(place("sub/a"), place("sub/b"));
    assert_ne!(place("sub/a"), place("a"));
}
