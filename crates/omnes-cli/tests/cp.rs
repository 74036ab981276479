//! `omnes cp` as a user sees it: copies, whole output and exit status.
//!
//! All ranks run on this machine, each with a destination of its own. Conditions that only a part
//! of a machine can have (a full disk, a killed rank) are produced with limits and signals, without
//! privileges.

#![allow(clippy::unwrap_used)]

mod as_root;

use as_root::is_root;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const OMNES: &str = env!("CARGO_BIN_EXE_omnes");
const RANKS: u32 = 4;

/// A copy within a temporary directory.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, bytes: usize) -> Vec<u8> {
        let data: Vec<u8> = (0..bytes).map(|at| (at * 31 % 251) as u8 ^ (at >> 12) as u8).collect();
        fs::write(self.path(name), &data).unwrap();
        data
    }

    /// The launcher with `command` as its ranks, in this directory.
    fn launcher(&self, command: &[&str]) -> Command {
        let mut launcher = Command::new(OMNES);
        launcher.args(["run", "-n", &RANKS.to_string(), "--timeout", "60s", "--"]).args(command);
        launcher.current_dir(self.0.path()).stdin(Stdio::null());
        launcher
    }

    fn cp(&self, arguments: &[&str]) -> Outcome {
        let output = self.launcher(&[&[OMNES, "cp"], arguments].concat()).output().unwrap();
        Outcome::of(output)
    }

    /// Like [`Self::cp`], with a shell's `before` in every rank.
    fn cp_after(&self, before: &str, arguments: &str) -> Outcome {
        let script = format!("{before}; exec {OMNES} cp {arguments}");
        Outcome::of(self.launcher(&["sh", "-c", &script]).output().unwrap())
    }

    /// Everything below this directory, including hidden entries.
    fn tree(&self) -> Vec<String> {
        fn walk(directory: &Path, top: &Path, found: &mut Vec<String>) {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                found.push(path.strip_prefix(top).unwrap().to_str().unwrap().to_owned());
                if path.symlink_metadata().unwrap().is_dir() {
                    walk(&path, top, found);
                }
            }
        }
        let mut found = Vec::new();
        walk(self.0.path(), self.0.path(), &mut found);
        found.sort();
        found
    }
}

#[derive(Debug)]
struct Outcome {
    status: i32,
    output: String,
    errors: String,
}

impl Outcome {
    fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self {
            status: output.status.code().unwrap(),
            output: text(output.stdout),
            errors: text(output.stderr),
        }
    }

    fn assert_done(&self, start: &str) {
        assert_eq!((self.status, self.errors.as_str()), (0, ""), "{self:?}");
        assert!(self.output.starts_with(start), "{self:?}");
        assert_eq!(self.output.lines().count(), 1, "{self:?}");
    }

    /// All ranks failed, and only rank 0 reports why.
    fn assert_refused(&self, reason: &str) {
        assert_eq!((self.status, self.output.as_str()), (1, ""), "{self:?}");
        let told = self.errors.lines().filter(|line| line.starts_with('['));
        let (of_first, others): (Vec<_>, Vec<_>) = told.partition(|line| line.starts_with("[0]"));
        assert!(of_first.iter().any(|line| line.contains(reason)), "{self:?}");
        assert!(others.is_empty(), "{self:?}");
    }
}

#[test]
fn file_is_copied_to_a_file_system_that_reports_no_free_space() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    place.write("in", 49);
    fs::create_dir(place.path("ram")).unwrap();
    // In a mount namespace of its own, so that nothing is left behind.
    let script = format!(
        "mount -t ramfs none ram && {OMNES} run -n {RANKS} -- {OMNES} cp in ram/{{rank}} && \
         cmp in ram/3"
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script]).current_dir(place.0.path());
    let outcome = Outcome::of(command.stdin(Stdio::null()).output().unwrap());
    outcome.assert_done("[0] 4 copies");
}

#[test]
fn copy_failure_names_the_host_in_jobs_of_several_hosts() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    place.write("in", 49);
    let mut command = Command::new(OMNES);
    command.args(["run", "-n", "2", "--lab", "--", OMNES, "cp", "in", "/proc/1/in"]);
    let output = command.current_dir(place.0.path()).stdin(Stdio::null()).output().unwrap();
    Outcome::of(output).assert_refused("omnes: rank 1 (lab-1): ");
}

#[test]
fn file_is_copied_to_every_rank() {
    let place = Place::new();
    let data = place.write("source", (9 << 20) + 5);
    let outcome = place.cp(&["source", "out/{rank}/copy", "--chunk", "1m", "--verify"]);
    let checksum = &blake3::hash(&data).to_hex()[..16];
    outcome.assert_done(&format!("[0] 4 copies, 9.0 MiB, blake3 {checksum}, "));
    for rank in 0..RANKS {
        assert!(fs::read(place.path(&format!("out/{rank}/copy"))).unwrap() == data, "{rank}");
        assert_eq!(fs::read_dir(place.path(&format!("out/{rank}"))).unwrap().count(), 1);
    }
}

#[test]
fn empty_file_is_copied() {
    let place = Place::new();
    place.write("source", 0);
    place.cp(&["source", "{rank}/", "--sync"]).assert_done("[0] 4 copies, 0 B, ");
    for rank in 0..RANKS {
        assert_eq!(fs::read(place.path(&format!("{rank}/source"))).unwrap(), b"");
    }
}

#[test]
fn procfs_and_sysfs_files_are_copied_with_their_contents() {
    let place = Place::new();
    for source in ["/proc/version", "/sys/class/net/lo/mtu"] {
        let expected = fs::read(source).unwrap();
        place.cp(&[source, "{rank}/"]).assert_done(&format!("[0] 4 copies, {} B", expected.len()));
        let name = Path::new(source).file_name().unwrap().to_str().unwrap();
        for rank in 0..RANKS {
            assert_eq!(fs::read(place.path(&format!("{rank}/{name}"))).unwrap(), expected);
        }
    }
}

#[test]
fn tree_is_copied_with_links_modes_times_and_empty_directories() {
    let place = Place::new();
    for directory in ["tree/a/empty", "tree/b/c"] {
        fs::create_dir_all(place.path(directory)).unwrap();
    }
    place.write("tree/a/large", 3 << 20);
    for file in 0..500 {
        place.write(&format!("tree/b/c/{file}"), file);
    }
    fs::set_permissions(place.path("tree/a/large"), fs::Permissions::from_mode(0o640)).unwrap();
    symlink("../a/large", place.path("tree/b/link")).unwrap();
    let outcome = place.cp(&["tree", "copy-{rank}", "--chunk", "256k", "--algorithm", "binomial"]);
    outcome.assert_done("[0] 4 copies of 501 files, 3.1 MiB, ");
    let all = place.tree();
    let below =
        |top: &str| -> Vec<&str> { all.iter().filter_map(|path| path.strip_prefix(top)).collect() };
    for rank in 0..RANKS {
        let top = format!("copy-{rank}/");
        assert_eq!(below(&top), below("tree/"));
        for path in below("tree/") {
            let (old, new) = (place.path("tree").join(path), place.path(&top).join(path));
            let (was, is) = (old.symlink_metadata().unwrap(), new.symlink_metadata().unwrap());
            assert_eq!((is.mode(), is.len()), (was.mode(), was.len()), "{path}");
            assert_eq!((is.mtime(), is.mtime_nsec()), (was.mtime(), was.mtime_nsec()), "{path}");
            if was.is_file() {
                assert!(fs::read(old).unwrap() == fs::read(new).unwrap(), "{path}");
            }
        }
    }
    assert_eq!(below("copy-0/b/link"), [""]);
}

#[test]
fn a_sparse_file_stays_sparse() {
    let place = Place::new();
    let source = File::create(place.path("source")).unwrap();
    source.set_len(1 << 30).unwrap();
    source.write_all_at(b"at the end", (1 << 30) - 10).unwrap();
    if source.metadata().unwrap().blocks() > 1 << 11 {
        eprintln!("skipped: needs a file system with holes");
        return;
    }
    place.cp(&["source", "{rank}"]).assert_done("[0] 4 copies, ");
    for rank in 0..RANKS {
        let copy = File::open(place.path(&rank.to_string())).unwrap();
        let metadata = copy.metadata().unwrap();
        assert_eq!(metadata.len(), 1 << 30);
        assert!(metadata.blocks() < 1 << 11, "{} blocks", metadata.blocks());
        let mut end = [0; 11];
        copy.read_exact_at(&mut end, (1 << 30) - 11).unwrap();
        assert_eq!(&end, b"\0at the end");
    }
}

#[test]
fn destinations_that_collide_are_rejected_before_writing() {
    let place = Place::new();
    place.write("source", 100);
    let reason = "rank 2: writes to the same place as rank 1; put {rank} into DEST";
    place.cp(&["source", "new/copy"]).assert_refused(reason);
    assert_eq!(place.tree(), ["source"]);
    // Ranks that change to directories of their own need no number in the name.
    let into = "mkdir $OMNES_RANK; cd $OMNES_RANK";
    place.cp_after(into, "../source copy").assert_done("[0] 3 copies, 100 B, ");
    let copies = ["0", "1", "1/copy", "2", "2/copy", "3", "3/copy", "source"];
    assert_eq!(place.tree(), copies);
}

#[test]
fn existing_destination_is_rejected_without_force() {
    let place = Place::new();
    let data = place.write("source", 1000);
    fs::write(place.path("copy-2"), "old").unwrap();
    let refused = place.cp(&["source", "copy-{rank}"]);
    refused.assert_refused("rank 2: copy-2: exists (--force replaces it)");
    assert_eq!(place.tree(), ["copy-2", "source"]);
    assert_eq!(fs::read(place.path("copy-2")).unwrap(), b"old");
    place.cp(&["source", "copy-{rank}", "--force"]).assert_done("[0] 4 copies, 1000 B, ");
    assert_eq!(fs::read(place.path("copy-2")).unwrap(), data);
    assert_eq!(place.tree(), ["copy-0", "copy-1", "copy-2", "copy-3", "source"]);
}

#[test]
fn tree_replaces_only_another_tree() {
    let place = Place::new();
    fs::create_dir_all(place.path("tree")).unwrap();
    place.write("tree/new", 10);
    for rank in 0..RANKS {
        fs::create_dir_all(place.path(&format!("{rank}/old"))).unwrap();
    }
    place.cp(&["tree", "{rank}", "--force"]).assert_done("[0] 4 copies of 1 file, 10 B, ");
    assert_eq!(
        place.tree(),
        ["0", "0/new", "1", "1/new", "2", "2/new", "3", "3/new", "tree", "tree/new"]
    );
    let refused = place.cp(&["tree/new", "{rank}", "--force"]);
    refused.assert_refused("rank 0: 0: is a directory (with / at its end the copy goes into it)");
}

#[test]
fn source_and_its_parent_directories_are_never_replaced() {
    let place = Place::new();
    fs::create_dir_all(place.path("a/b")).unwrap();
    let data = place.write("a/b/file", 10);
    place.write("a/precious", 10);
    fs::create_dir(place.path("1")).unwrap();
    symlink("../a", place.path("1/a")).unwrap();
    symlink("a/b/file", place.path("link")).unwrap();
    let before = place.tree();
    let onto = "would write over the source";
    place.cp(&["a/b/file", "a/b/file", "--force"]).assert_refused(onto);
    place.cp(&["a", "a", "--force"]).assert_refused(onto);
    place.cp(&["link", "link", "--force"]).assert_refused(onto);
    place.cp(&["link", "a/b/file", "--force"]).assert_refused(onto);
    let above = "would replace a directory that holds the source";
    place.cp(&["a/b", "a", "--force"]).assert_refused(above);
    // A rank elsewhere names its directory differently, and the source through a link.
    let elsewhere = "[ $OMNES_RANK != 2 ] || cd 1; dest=$([ -L a ] && echo ../a || echo x{rank})";
    let refused = place.cp_after(elsewhere, "--force a/b \"$dest\"");
    refused.assert_refused(&format!("rank 2: {above}"));
    assert_eq!(place.tree(), before);
    assert_eq!(fs::read(place.path("a/b/file")).unwrap(), data);
}

#[test]
fn only_overlay_trees_of_the_upper_layer_are_replaced() {
    let place = Place::new();
    for directory in ["lower/0/old", "upper", "work", "merged", "lower/tree/new"] {
        fs::create_dir_all(place.path(directory)).unwrap();
    }
    let script = format!(
        "layers=lowerdir=lower,upperdir=upper,workdir=work
         mount -t overlay overlay -o userxattr,$layers merged || exit 77
         cd merged && mkdir -p 1/old && ls -A . 0 > ../before
         {OMNES} run -n 2 --timeout 60s -- {OMNES} cp --force tree {{rank}}; status=$?
         ls -A . 0 | diff ../before - || exit 3
         rm -r 0 && {OMNES} run -n 2 --timeout 60s -- {OMNES} cp --force tree {{rank}} || exit 4
         [ -d 0/new ] && [ -d 1/new ] && exit $status"
    );
    let mut command = Command::new("unshare");
    command.args(["-rm", "sh", "-c", &script]).current_dir(place.0.path());
    let output = command.stdin(Stdio::null()).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    if output.status.code() == Some(77) || told.starts_with("unshare:") {
        eprintln!("skipped: needs overlays");
        return;
    }
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("rank 0: 0: lies in a lower layer of an overlay"), "{told}");
    assert!(!told.contains("rank 1: "), "{told}");
}

#[test]
fn replacing_a_tree_with_mounts_is_rejected_and_keeps_their_contents() {
    let place = Place::new();
    for directory in ["tree/new", "0/deep/a b", "1/old", "other"] {
        fs::create_dir_all(place.path(directory)).unwrap();
    }
    fs::write(place.path("other/kept"), "").unwrap();
    let script = format!(
        "mount --bind other '0/deep/a b' || exit 77
         {OMNES} run -n 2 --timeout 60s -- {OMNES} cp --force tree {{rank}}; status=$?
         [ -e other/kept ] || exit 3
         umount '0/deep/a b' && {OMNES} run -n 2 --timeout 60s -- {OMNES} cp --force tree {{rank}} \
             || exit 4
         [ -d 0/new ] && [ -d 1/new ] && [ ! -d 0/deep ] && exit $status"
    );
    let mut command = Command::new("unshare");
    command.args(["-rm", "sh", "-c", &script]).current_dir(place.0.path());
    let output = command.stdin(Stdio::null()).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    if output.status.code() == Some(77) || told.starts_with("unshare:") {
        eprintln!("skipped: needs mounts");
        return;
    }
    assert_eq!(output.status.code(), Some(1), "{told}");
    let mount = place.0.path().canonicalize().unwrap().join("0/deep/a b");
    let refused = format!("rank 0: 0: {} is mounted below it", mount.display());
    assert!(told.contains(&refused), "{told}");
    assert!(!told.contains("rank 1: "), "{told}");
}

#[test]
fn destination_that_cannot_be_created_is_reported_without_leftovers() {
    let place = Place::new();
    place.write("source", 1000);
    // Even for root, a file is not a directory.
    fs::create_dir(place.path("out")).unwrap();
    fs::write(place.path("out/3"), "").unwrap();
    let refused = place.cp(&["source", "out/{rank}/deep/copy"]);
    refused.assert_refused("rank 3: cannot look at out/3/deep/copy: Not a directory");
    assert_eq!(place.tree(), ["out", "out/3", "source"]);
}

#[test]
fn missing_source_is_reported_by_rank_0() {
    let place = Place::new();
    place.cp(&["absent", "out/{rank}"]).assert_refused("rank 0: cannot read absent: No such file");
    assert_eq!(place.tree(), [""; 0]);
}

#[test]
fn disk_full_during_the_copy_ends_all_ranks_without_leftovers() {
    let place = Place::new();
    fs::create_dir(place.path("tree")).unwrap();
    (0..8).for_each(|file| drop(place.write(&format!("tree/{file}"), 12 << 20)));
    place.write("tree/last", 40 << 20);
    // Rank 2 may write files of 16 MiB, so it fails after many chunks.
    let limit = "[ $OMNES_RANK != 2 ] || ulimit -f 32768";
    let refused = place.cp_after(limit, "--chunk 1m tree out/{rank}");
    refused.assert_refused("rank 2: cannot write out/2/last: File too large");
    assert!(!place.path("out").exists(), "{:?}", place.tree());
}

/// A running copy of a file too large to be copied before the test has inspected it.
struct Running {
    launcher: Child,
    ranks: Vec<libc::pid_t>,
}

impl Running {
    fn start(place: &Place, arguments: &str) -> Self {
        Self::start_after(place, ":", arguments)
    }

    /// Like [`Self::start`], with a shell's `before` in every rank.
    fn start_after(place: &Place, before: &str, arguments: &str) -> Self {
        // Each rank prints its process id, then becomes the copy.
        let script = format!("{before}; echo $OMNES_RANK $$; exec {OMNES} cp {arguments}");
        let mut command = place.launcher(&["sh", "-c", &script]);
        command.env("OMNES_PEER_TIMEOUT", "2s").stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut launcher = command.spawn().unwrap();
        let mut lines = BufReader::new(launcher.stdout.take().unwrap()).lines();
        let mut ranks = vec![0; RANKS as usize];
        for _ in 0..RANKS {
            let line = lines.next().unwrap().unwrap();
            let mut words = line.split_whitespace().skip(1);
            let rank: usize = words.next().unwrap().parse().unwrap();
            ranks[rank] = words.next().unwrap().parse().unwrap();
        }
        std::thread::spawn(move || lines.for_each(drop));
        Self { launcher, ranks }
    }

    /// Waits until the rank has written this much, as the kernel counts it, or has ended.
    fn wait_until_written(&self, rank: usize, bytes: u64) {
        let path = format!("/proc/{}/io", self.ranks[rank]);
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let Ok(counts) = fs::read_to_string(&path) else { return };
            let written = counts.lines().find_map(|line| line.strip_prefix("wchar: ")).unwrap();
            if written.parse::<u64>().unwrap() >= bytes {
                return;
            }
            assert!(Instant::now() < deadline, "nothing is written: {counts}");
            std::thread::yield_now();
        }
    }

    fn signal(&self, process: libc::pid_t, signal: i32) {
        // SAFETY: plain system call; the process is ours and has not been waited for.
        assert_eq!(unsafe { libc::kill(process, signal) }, 0);
    }

    /// Status, errors, and the time until the end.
    fn finish(mut self) -> (Option<i32>, String, Duration) {
        let start = Instant::now();
        let mut errors = String::new();
        self.launcher.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        (self.launcher.wait().unwrap().code(), errors, start.elapsed())
    }
}

#[test]
fn rank_killed_during_a_copy_is_named_and_no_copy_appears() {
    let place = Place::new();
    place.write("source", 256 << 20);
    for victim in [0, 2] {
        let running = Running::start(&place, "source {rank}-copy");
        running.wait_until_written(1, 16 << 20);
        running.signal(running.ranks[victim], libc::SIGKILL);
        let (status, errors, time) = running.finish();
        assert_eq!(status, Some(128 + libc::SIGKILL), "{errors}");
        assert!(time < Duration::from_secs(5), "{time:?}");
        for rank in (0..RANKS as usize).filter(|rank| *rank != victim) {
            let line = format!("[{rank}] omnes: rank {rank}: rank {victim} has failed: ");
            assert!(errors.lines().any(|other| other.starts_with(&line)), "{errors}");
        }
        assert_eq!(place.tree(), ["source"]);
    }
}

#[test]
fn interrupted_tree_copy_leaves_no_files() {
    let place = Place::new();
    fs::create_dir(place.path("tree")).unwrap();
    (0..256).for_each(|file| drop(place.write(&format!("tree/{file}"), 1 << 20)));
    for signal in [libc::SIGTERM, libc::SIGUSR1] {
        let running = Running::start(&place, "tree {rank}-copy");
        running.wait_until_written(2, 16 << 20);
        running.signal(libc::pid_t::try_from(running.launcher.id()).unwrap(), signal);
        let (status, errors, _) = running.finish();
        assert_ne!(status, Some(0), "{errors}");
    }
    fs::remove_dir_all(place.path("tree")).unwrap();
    assert_eq!(place.tree(), [""; 0]);
}

#[test]
fn interrupted_copy_removes_its_new_parent_directories() {
    let place = Place::new();
    place.write("source", 256 << 20);
    let running = Running::start(&place, "source out/{rank}/deep/copy");
    running.wait_until_written(2, 16 << 20);
    running.signal(libc::pid_t::try_from(running.launcher.id()).unwrap(), libc::SIGTERM);
    let (status, errors, _) = running.finish();
    assert_ne!(status, Some(0), "{errors}");
    assert_eq!(place.tree(), ["source"], "{errors}");
}

#[test]
fn rank_that_ignores_sighup_continues_copying() {
    let place = Place::new();
    place.write("source", 128 << 20);
    let running = Running::start_after(&place, "trap '' HUP", "source {rank}");
    running.wait_until_written(2, 16 << 20);
    running.signal(running.ranks[2], libc::SIGHUP);
    let (status, errors, _) = running.finish();
    assert_eq!((status, errors.as_str()), (Some(0), ""));
    assert_eq!(place.tree(), ["0", "1", "2", "3", "source"]);
}

#[test]
fn signal_during_the_commit_leaves_the_complete_old_or_new_tree() {
    const FILES: usize = 3000;
    const BYTES: usize = 2048;
    let place = Place::new();
    fs::create_dir(place.path("tree")).unwrap();
    (0..FILES).for_each(|file| drop(place.write(&format!("tree/new-{file}"), BYTES)));
    for victim in [1, 2, 3] {
        for rank in 0..RANKS {
            let dest = place.path(&format!("{rank}"));
            let _ = fs::remove_dir_all(&dest);
            fs::create_dir(&dest).unwrap();
            (0..10).for_each(|file| fs::write(dest.join(format!("old-{file}")), "").unwrap());
        }
        let running = Running::start(&place, "tree {rank} --force");
        // Everything is written; only agreement and commit remain.
        running.wait_until_written(victim, (FILES * BYTES) as u64);
        // SAFETY: plain system call; a process that has ended meanwhile has a complete copy.
        unsafe { libc::kill(running.ranks[victim], libc::SIGTERM) };
        let (_, errors, _) = running.finish();
        for rank in 0..RANKS {
            let entries = fs::read_dir(place.path(&format!("{rank}"))).unwrap();
            let names: Vec<_> = entries.map(|it| it.unwrap().file_name()).collect();
            let is_new = names.first().is_some_and(|it| it.as_bytes().starts_with(b"new"));
            let expected = if is_new { FILES } else { 10 };
            assert_eq!(names.len(), expected, "rank {rank}, signal to {victim}: {errors}");
        }
        let found = place.tree();
        assert!(!found.iter().any(|path| path.starts_with(".omnes")), "{errors}");
    }
}

#[test]
fn without_a_launcher_the_way_out_is_told() {
    let output = Command::new(OMNES).args(["cp", "a", "b"]).env_clear().output().unwrap();
    let outcome = Outcome::of(output);
    assert_eq!((outcome.status, outcome.errors.lines().count()), (2, 1), "{outcome:?}");
    assert!(outcome.errors.contains("`omnes run -n 8 -- omnes cp SRC DEST`"), "{outcome:?}");
}

#[test]
fn unknown_placeholders_are_rejected_before_writing() {
    let place = Place::new();
    place.write("source", 10);
    for dest in ["out/{RANK}/f", "out/{rank"] {
        let refused = place.cp(&["source", dest]);
        let told = refused.errors.lines().filter(|line| line.starts_with('['));
        assert_eq!((refused.status, told.count()), (2, 1), "{refused:?}");
        assert!(refused.errors.contains("known is {rank}"), "{refused:?}");
    }
    assert_eq!(place.tree(), ["source"]);
}

#[test]
fn out_of_range_chunk_size_error_names_the_allowed_range() {
    let place = Place::new();
    place.write("source", 10);
    for (chunk, shown) in [("255k", "255 KiB"), ("2g", "2 GiB")] {
        let refused = place.cp(&["source", "copy", "--chunk", chunk]);
        let told = format!("--chunk of {shown}: must be from 256 KiB to 1 GiB");
        assert_eq!(refused.status, 2, "{refused:?}");
        assert!(refused.errors.contains(&told), "{refused:?}");
    }
}
