//! Publishing by one process and reading by another, both played by this process.
#![allow(clippy::unwrap_used)]

use super::directory::Directory;
use super::file::LiveFile;
use super::layout::{self, Identity};
use super::process::Process;
use super::*;
use crate::job::EngineCounters;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const NAMES: &[&str] = &["copied_bytes", "sleeps"];
const HOUR: Duration = Duration::from_secs(3600);

/// A directory with the permissions that ranks require.
fn private() -> tempfile::TempDir {
    let only_own = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    tempfile::Builder::new().permissions(only_own).tempdir().unwrap()
}

fn config(directory: &Path) -> LiveConfig {
    LiveConfig {
        place: StatsPlace::In(directory.to_owned()),
        names: NAMES,
        values: Box::new(|counters| vec![counters.copied_bytes, counters.sleeps]),
    }
}

fn start(directory: &Path, rank: u32) -> Publisher {
    Publisher::start(config(directory), &Who { job: 0xab, rank, size: 2 })
}

fn survey(directory: &Path) -> Survey {
    Survey::take(&StatsPlace::In(directory.to_owned()))
}

/// A process that never existed: its number is this one's, its start is not.
fn dead() -> Process {
    Process { start_ticks: 1, ..Process::this() }
}

/// Writes the file of a rank of `process` that last published `age` ago.
fn write_file(directory: &Path, rank: u32, process: Process, age: Duration) {
    write_file_at(directory, rank, process, SystemTime::now() - age);
}

/// The same, with the time of the last update.
fn write_file_at(directory: &Path, rank: u32, process: Process, updated: SystemTime) {
    let identity = Identity {
        process,
        rank,
        size: 64,
        job: 1,
        started_ns: 0,
        host: "here".to_owned(),
        command: "test".to_owned(),
    };
    let mut bytes = layout::emit(&identity, NAMES);
    let updated_at = layout::values_at(NAMES.len()) + 8;
    let updated_ns = updated.duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    bytes[updated_at..updated_at + 8].copy_from_slice(&updated_ns.to_ne_bytes());
    let path = directory.join(format!("1-{rank}.live"));
    std::fs::write(&path, bytes).unwrap();
    set_modified(&path, updated);
}

fn set_age(path: &Path, age: Duration) {
    set_modified(path, SystemTime::now() - age);
}

fn set_modified(path: &Path, modified: SystemTime) {
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.set_modified(modified).unwrap();
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn published_values_are_read_and_a_clean_exit_leaves_no_file() {
    let directory = private();
    let publisher = start(directory.path(), 1);
    let file = directory.path().join("000000ab-1.live");
    assert_eq!(*publisher.state(), LiveState::On { file: file.clone() });
    assert!(publisher.is_due());
    publisher.publish(&EngineCounters { copied_bytes: 7, sleeps: 9, ..EngineCounters::default() });
    assert!(!publisher.is_due());
    let survey = survey(directory.path());
    assert!(survey.refused.is_empty());
    let [rank] = &survey.ranks[..] else { panic!("{survey:?}") };
    assert_eq!((rank.job, rank.rank, rank.size, rank.pid), (0xab, 1, 2, std::process::id()));
    assert_eq!((rank.counter("copied_bytes"), rank.counter("sleeps")), (Some(7), Some(9)));
    assert_eq!(rank.counter("none"), None);
    assert_eq!((rank.life, rank.is_whole, &rank.file), (Life::Running, true, &file));
    publisher.leave();
    publisher.publish(&EngineCounters::default());
    drop(publisher);
    assert!(names(directory.path()).is_empty());
}

#[test]
fn rank_dropped_without_farewell_is_dead_and_its_file_remains() {
    let directory = private();
    drop(start(directory.path(), 0));
    assert_eq!(survey(directory.path()).ranks[0].life, Life::Dead);
    assert_eq!(names(directory.path()), ["000000ab-0.live"]);
}

#[test]
fn whole_snapshots_are_never_torn() {
    let directory = private();
    let publisher = start(directory.path(), 0);
    let is_over = AtomicBool::new(false);
    let look = || -> (u32, u32) {
        let ranks = (0..500).flat_map(|_| survey(directory.path()).ranks);
        let whole: Vec<_> = ranks.filter(|rank| rank.is_whole).collect();
        let torn = whole.iter().filter(|rank| rank.counters[0].1 != rank.counters[1].1);
        (whole.len() as u32, torn.count() as u32)
    };
    let (whole, torn) = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut counters = EngineCounters::default();
            while !is_over.load(Ordering::Relaxed) {
                counters.copied_bytes += 1;
                counters.sleeps = counters.copied_bytes;
                publisher.publish(&counters);
            }
        });
        let result = look();
        is_over.store(true, Ordering::Relaxed);
        result
    });
    println!("{whole} of 500 snapshots were whole");
    assert!(whole > 0);
    assert_eq!(torn, 0);
}

#[test]
fn starting_rank_removes_only_files_dead_for_over_an_hour() {
    let directory = private();
    let path = directory.path();
    write_file(path, 0, dead(), HOUR * 2);
    write_file(path, 1, dead(), HOUR / 2);
    write_file(path, 2, Process::this(), HOUR * 2);
    write_file(path, 3, Process { boot_id: [1; 16], ..dead() }, HOUR * 2);
    write_file(path, 4, Process { boot_id: [1; 16], ..dead() }, HOUR / 2);
    // Written with a clock that was ahead.
    write_file_at(path, 5, Process { boot_id: [1; 16], ..dead() }, SystemTime::now() + HOUR * 2);
    for name in ["old.live", "other"] {
        std::fs::write(path.join(name), "not ours").unwrap();
        set_age(&path.join(name), HOUR * 2);
    }
    let publisher = start(path, 0);
    let left = ["000000ab-0.live", "1-1.live", "1-2.live", "1-4.live", "old.live", "other"];
    assert_eq!(names(path), left);
    let survey = survey(path);
    let lives: Vec<_> = survey.ranks.iter().map(|rank| (rank.job, rank.rank, rank.life)).collect();
    let silent = [(1, 2, Life::Silent), (1, 4, Life::Silent)];
    assert_eq!(lives, [(1, 1, Life::Dead), silent[0], silent[1], (0xab, 0, Life::Running)]);
    publisher.leave();
}

#[test]
fn cleaning_removes_selected_dead_ranks_and_incomplete_files() {
    let directory = private();
    let path = directory.path();
    for rank in 0..3 {
        write_file(path, rank, dead(), Duration::ZERO);
    }
    write_file(path, 3, Process::this(), Duration::ZERO);
    for name in ["young.live.new", "old.live.new", "other.new"] {
        std::fs::write(path.join(name), "").unwrap();
    }
    set_age(&path.join("old.live.new"), Duration::from_secs(61));
    std::fs::write(path.join("empty.live"), [0; 500]).unwrap();
    set_age(&path.join("empty.live"), HOUR * 2);
    set_age(&path.join("other.new"), HOUR);
    let place = StatsPlace::In(path.to_owned());
    let cleaned = Survey::clean(&place, |rank| rank.rank != 1);
    let removed: Vec<_> = cleaned.ranks.iter().map(|rank| rank.rank).collect();
    assert_eq!(removed, [0, 2]);
    assert!(cleaned.refused.is_empty());
    assert_eq!(names(path), ["1-1.live", "1-3.live", "other.new", "young.live.new"]);
    assert!(survey(path).refused.is_empty());
}

#[test]
fn invalid_files_are_rejected_by_name_and_the_others_are_read() {
    let directory = private();
    let path = directory.path();
    let publisher = start(path, 0);
    std::fs::write(path.join("a.live"), [0x7f; 4096]).unwrap();
    std::fs::write(path.join("b.live"), [1; 10]).unwrap();
    std::fs::write(path.join("c.live"), vec![1; layout::FILE_BYTES_MAX + 1]).unwrap();
    std::fs::create_dir(path.join("d.live")).unwrap();
    let survey = survey(path);
    assert_eq!(survey.ranks.len(), 1);
    let refusals: Vec<_> = survey.refused.iter().map(ToString::to_string).collect();
    let bytes_max = layout::FILE_BYTES_MAX;
    let reasons = [
        ("a", "is not a file of live counters".to_owned()),
        ("b", format!("has 10 bytes in place of {}", layout::NAMES_AT)),
        (
            "c",
            format!("has {} bytes; a file of live counters has at most {bytes_max}", bytes_max + 1),
        ),
        ("d", "is not a regular file".to_owned()),
    ];
    let expected = reasons.map(|(name, reason)| format!("{}/{name}.live {reason}", path.display()));
    assert_eq!(refusals, expected);
    publisher.leave();
}

#[test]
fn file_of_another_user_is_rejected() {
    let directory = private();
    write_file(directory.path(), 0, dead(), Duration::ZERO);
    let name = names(directory.path()).remove(0);
    let path = directory.path().join(name);
    if std::os::unix::fs::chown(&path, Some(1), None).is_err() {
        let required = std::env::var("OMNES_REQUIRE").unwrap_or_default();
        assert!(!required.split(',').any(|word| word == "root"), "OMNES_REQUIRE=root: not root");
        println!("skipped: needs root");
        return;
    }
    let survey = survey(directory.path());
    let errors: Vec<_> = survey.refused.iter().map(|refused| &refused.error).collect();
    assert!(matches!(errors[..], [LiveError::FileOwner { owner: 1, .. }]), "{errors:?}");
    assert!(survey.ranks.is_empty());
}

#[test]
fn rank_that_cannot_publish_reports_the_reason_and_continues() {
    let directory = private();
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    let publisher = start(&file, 0);
    let LiveState::Off { reason } = publisher.state() else { panic!() };
    assert!(reason.contains(file.to_str().unwrap()), "{reason}");
    assert!(!publisher.is_due());
    publisher.publish(&EngineCounters::default());
    publisher.leave();
    let off = LiveConfig { place: StatsPlace::Off, ..config(&file) };
    let off = Publisher::start(off, &Who { job: 1, rank: 0, size: 1 });
    assert_eq!(*off.state(), LiveState::Off { reason: "switched off".to_owned() });
}

#[test]
fn manually_removed_file_causes_no_error() {
    let directory = private();
    let identity = Identity {
        process: Process::this(),
        rank: 0,
        size: 1,
        job: 5,
        started_ns: 0,
        host: String::new(),
        command: String::new(),
    };
    let place = StatsPlace::In(directory.path().to_owned());
    let mut file =
        LiveFile::create(Directory::for_writing(&place).unwrap(), &identity, NAMES).unwrap();
    Directory::for_writing(&place).unwrap().remove(OsStr::new("00000005-0.live")).unwrap();
    file.publish(&[1, 2, 3]);
    file.remove();
}
