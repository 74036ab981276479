//! Figures kept from job to job: one file for all networks of a user.
//!
//! The file is `omnes/tune.json` in `$XDG_CACHE_HOME` or `~/.cache`, or the one that `OMNES_TUNE`
//! names. Only rank 0 reads and writes it.
//!
//! Guarantees: a reader sees a complete file, old or new (a temporary file is written and renamed).
//! A file that is damaged, too large or of another format counts as empty, and the next job that
//! stores figures replaces it. A file that may not be read, such as another user's, or that is not
//! a regular file is left in place, and no figures are kept. Two jobs that store at the same time
//! may lose the figures of one, which are then measured again. At most [`ENTRIES_MAX`] networks are
//! kept, the newest.

use super::cost::Figures;
use super::network::Network;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Maximum number of networks kept.
const ENTRIES_MAX: usize = 64;
/// A larger file was not written by Omnes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Format of the file.
const FORMAT: u32 = 1;
/// Age at which figures of a quick measurement expire: networks change.
const QUICK_AGE_MAX: Duration = Duration::from_secs(30 * 24 * 3600);
/// Tolerance for clock differences, in seconds.
const CLOCK_ERROR_S: u64 = 3600;
/// Ages of the first, second, ... quick measurement at which one more is taken. Each may coincide
/// with other activity of the machines, so the intervals grow.
const QUICK_AGAIN: [Duration; 4] = [
    Duration::from_secs(60),
    Duration::from_secs(15 * 60),
    Duration::from_secs(4 * 3600),
    Duration::from_secs(24 * 3600),
];

/// Where measurements are kept. Text form: `auto`, `off`, or an absolute path.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Tune {
    /// In the user's cache directory; see [`Cache::usual`].
    #[default]
    Auto,
    /// Nowhere: nothing is measured, and the choice follows built-in rules.
    Off,
    /// In this file.
    In(PathBuf),
}

impl FromStr for Tune {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        match text {
            "auto" => Ok(Self::Auto),
            "off" => Ok(Self::Off),
            path if path.starts_with('/') => Ok(Self::In(path.into())),
            _ => Err("must be auto, off or the path of a file, from the root"),
        }
    }
}

/// How measurements were taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Effort {
    /// Quickly, at the start of a job.
    Quick,
    /// By `omnes tune`.
    Thorough,
}

/// Measurements of one network.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The network.
    pub network: Network,
    /// The costs.
    pub figures: Figures,
    /// How the costs were measured.
    pub effort: Effort,
    /// Time of the measurement, in seconds since 1970; of the last one, if there were several.
    pub measured_unix_s: u64,
    /// Results of several quick measurements, of which `figures` are the medians. Empty after a
    /// single one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rounds: Vec<Figures>,
}

impl Entry {
    /// Entry with costs that have just been measured.
    pub fn new(network: Network, figures: Figures, effort: Effort) -> Self {
        let (measured_unix_s, rounds) = (now_unix_s(), Vec::new());
        Self { network, figures, effort, measured_unix_s, rounds }
    }

    /// Adds the results of one more quick measurement, which has just ended.
    pub(super) fn and(self, figures: Figures) -> Self {
        let mut rounds = self.rounds;
        if rounds.is_empty() {
            rounds.push(self.figures);
        }
        rounds.push(figures);
        let medians = Figures::medians(&rounds);
        Self { rounds, ..Self::new(self.network, medians, self.effort) }
    }

    /// Number of measurements behind the costs.
    pub fn measurements(&self) -> usize {
        self.rounds.len().max(1)
    }

    /// True if it is time for one more quick measurement.
    pub(super) fn is_due(&self) -> bool {
        let again = QUICK_AGAIN.get(self.measurements() - 1);
        self.effort == Effort::Quick && again.is_some_and(|again| self.age() >= *again)
    }

    /// Why jobs whose rank 0 runs on this machine do not use the entry; `None` if they do on its
    /// network.
    pub fn unused(&self) -> Option<&'static str> {
        if !self.network.is_of_this_version() {
            return Some("another version of Omnes has measured it");
        }
        if !self.network.is_of_this_machine() {
            return Some("rank 0 was on another machine");
        }
        if !self.is_sound() {
            return Some("its figures are damaged");
        }
        (!self.is_fresh()).then_some("it is too old, or the clock was wrong")
    }

    /// True if the costs have not expired.
    fn is_fresh(&self) -> bool {
        self.effort == Effort::Thorough || self.age() < QUICK_AGE_MAX
    }

    /// True if the costs are within their bounds.
    fn is_sound(&self) -> bool {
        let is_sound = |figures: &Figures| {
            figures.multicast.is_some() == self.network.has_multicast && figures.is_sound()
        };
        is_sound(&self.figures) && self.rounds.iter().all(is_sound)
    }

    /// Time since the measurement; infinite if the measurement seems to be in the future, because
    /// the clock was wrong then or is wrong now.
    fn age(&self) -> Duration {
        let now_unix_s = now_unix_s();
        if self.measured_unix_s > now_unix_s + CLOCK_ERROR_S {
            return Duration::MAX;
        }
        Duration::from_secs(now_unix_s.saturating_sub(self.measured_unix_s))
    }
}

fn now_unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[derive(Serialize, Deserialize)]
struct Content {
    format: u32,
    /// The newest first. Values are parsed one by one, so that an entry of another version does not
    /// invalidate the others.
    networks: Vec<serde_json::Value>,
}

/// A file of measurements; see the module header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cache {
    path: PathBuf,
}

impl Cache {
    /// The user's file; `None` if the environment does not determine its path.
    pub fn usual() -> Option<Self> {
        let absolute = |name| {
            std::env::var_os(name).map(PathBuf::from).filter(|path: &PathBuf| path.is_absolute())
        };
        let home = || absolute("HOME").map(|home| home.join(".cache"));
        let directory = absolute("XDG_CACHE_HOME").or_else(home)?;
        Some(Self { path: directory.join("omnes/tune.json") })
    }

    /// The file that `tune` refers to, if any.
    pub fn of(tune: &Tune) -> Option<Self> {
        match tune {
            Tune::Auto => Self::usual(),
            Tune::Off => None,
            Tune::In(path) => Some(Self { path: path.clone() }),
        }
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All entries, the newest first; none if it cannot be read or parsed.
    pub fn entries(&self) -> Vec<Entry> {
        self.read().map_or(Vec::new(), |text| Self::parse(&text))
    }

    /// Why no entries are found in a file that exists; `None` if it has no fault.
    pub fn fault(&self) -> Option<String> {
        match self.read().map(|text| serde_json::from_slice::<Content>(&text)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => Some(format!("cannot be read: {error}")),
            Ok(Err(error)) => Some(format!("is damaged, and will be replaced: {error}")),
            Ok(Ok(Content { format, .. })) => {
                (format != FORMAT).then(|| format!("has format {format} instead of {FORMAT}"))
            }
        }
    }

    fn parse(text: &[u8]) -> Vec<Entry> {
        let content: Option<Content> = serde_json::from_slice(text).ok();
        let values = content.filter(|it| it.format == FORMAT).map_or(Vec::new(), |it| it.networks);
        let entries = values.into_iter().filter_map(|it| serde_json::from_value(it).ok());
        entries.take(ENTRIES_MAX).collect()
    }

    fn read(&self) -> io::Result<Vec<u8>> {
        // Without this flag, opening a pipe would block until it has a writer.
        let mut options = File::options();
        let file = options.read(true).custom_flags(libc::O_NONBLOCK).open(&self.path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a file"));
        }
        let mut text = Vec::new();
        file.take(FILE_BYTES_MAX).read_to_end(&mut text)?;
        Ok(text)
    }

    /// Measurements of exactly this network, unless they have expired.
    pub fn find(&self, network: &Network) -> Option<Entry> {
        self.entries()
            .into_iter()
            .find(|entry| entry.network == *network && entry.is_fresh() && entry.is_sound())
    }

    /// Stores `entry`, in place of earlier measurements of its network.
    ///
    /// # Errors
    /// File system errors, and an error if a file exists that cannot be read, which is then kept.
    pub fn store(&self, entry: Entry) -> io::Result<()> {
        let mut entries = match self.read() {
            Ok(text) => Self::parse(&text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        entries.retain(|other| other.network != entry.network);
        entries.insert(0, entry);
        entries.truncate(ENTRIES_MAX);
        let networks: Result<_, _> = entries.iter().map(serde_json::to_value).collect();
        let content = Content { format: FORMAT, networks: networks? };
        self.replace(&(serde_json::to_string_pretty(&content)? + "\n"))
    }

    fn replace(&self, text: &str) -> io::Result<()> {
        let directory = self.path.parent().unwrap_or(Path::new("/"));
        std::fs::create_dir_all(directory)?;
        let name = self.path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
        // If other users may write to the directory, they may have placed a link under a
        // predictable name.
        let random = u64::from_be_bytes(omnes_net::random().map_err(io::Error::other)?);
        let beside = directory.join(format!(".{name}.{random:016x}"));
        let written = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&beside)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .and_then(|()| std::fs::rename(&beside, &self.path));
        if written.is_err() {
            // If this fails, too, nothing more can be done.
            let _ = std::fs::remove_file(&beside);
        }
        written
    }

    /// Removes the file; returns whether there was one.
    ///
    /// # Errors
    /// File system errors.
    pub fn clear(&self) -> io::Result<bool> {
        match std::fs::remove_file(&self.path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::cost::Cost;
    use super::*;
    use std::os::unix::fs::{FileTypeExt, symlink};
    use std::process::Command;

    /// All entries have the same time, so that they can be compared.
    fn entry(ranks: u32) -> Entry {
        static MOMENT: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
        let network = Network {
            version: "0.1.0".to_owned(),
            machine: "0123456789abcdef".to_owned(),
            name: None,
            prefix: "10.0.0.0/8".to_owned(),
            payload_bytes: 1416,
            ranks,
            nodes: ranks,
            is_oversubscribed: false,
            has_multicast: true,
            multisend: None,
        };
        let cost =
            |seed| Cost { level_ns: 1000 * seed, level_byte_ps: seed, stream_byte_ps: 2 * seed };
        let (binomial, chain) = (cost(2), cost(1));
        let multicast = Some(cost(3));
        let figures = Figures { multicast, binomial, chain, lambda_thousandths: None };
        let moment = *MOMENT.get_or_init(now_unix_s);
        Entry { measured_unix_s: moment, ..Entry::new(network, figures, Effort::Quick) }
    }

    fn cache(directory: &tempfile::TempDir) -> Cache {
        Cache { path: directory.path().join("a/b/tune.json") }
    }

    #[test]
    fn stored_figures_are_found_only_for_their_network() {
        let directory = tempfile::tempdir().unwrap();
        let cache = cache(&directory);
        assert_eq!(cache.entries(), []);
        cache.store(entry(8)).unwrap();
        cache.store(entry(16)).unwrap();
        assert_eq!(cache.find(&entry(8).network), Some(entry(8)));
        assert_eq!(cache.entries().len(), 2);
        let foreign: [fn(&mut Network); 10] = [
            |it| it.version = "0.0.9".to_owned(),
            |it| it.machine = "f".to_owned(),
            |it| it.name = Some("lab".to_owned()),
            |it| it.prefix = "fd00::/64".to_owned(),
            |it| it.payload_bytes = 8916,
            |it| it.ranks = 9,
            |it| it.nodes = 4,
            |it| it.is_oversubscribed = true,
            |it| it.has_multicast = false,
            |it| it.multisend = Some("auto:loop".to_owned()),
        ];
        for change in foreign {
            let mut network = entry(8).network;
            change(&mut network);
            assert_eq!(cache.find(&network), None, "{network}");
        }
        // New figures replace old ones, and no temporary file is left.
        let mut newer = entry(8);
        newer.figures.chain.level_ns += 1;
        cache.store(newer.clone()).unwrap();
        assert_eq!(cache.find(&newer.network), Some(newer));
        assert_eq!(cache.entries().len(), 2);
        assert_eq!(std::fs::read_dir(cache.path().parent().unwrap()).unwrap().count(), 1);
        assert!(cache.clear().unwrap() && !cache.clear().unwrap());
    }

    #[test]
    fn damaged_content_counts_as_empty_and_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let cache = cache(&directory);
        cache.store(entry(8)).unwrap();
        let whole = std::fs::read_to_string(cache.path()).unwrap();
        let half = whole[..whole.len() / 2].to_owned();
        let later = whole.replace("\"format\": 1", "\"format\": 2");
        let negative = whole.replace("3000", "-3000");
        let immense = whole.replace("3000", "3000000000000");
        let strange = whole.replace("level_ns", "level");
        let incomplete = whole.replace("\"has_multicast\": true", "\"has_multicast\": false");
        let mut elsewhere = entry(8).network;
        elsewhere.has_multicast = false;
        for text in ["", "{}", "[1]", &half, &later, &negative, &immense, &strange, &incomplete] {
            std::fs::write(cache.path(), text).unwrap();
            assert_eq!(cache.find(&entry(8).network), None, "{text}");
            assert_eq!(cache.find(&elsewhere), None, "{text}");
            cache.store(entry(8)).unwrap();
            assert_eq!(cache.find(&entry(8).network), Some(entry(8)));
        }
        std::fs::write(cache.path(), [0xff; 100]).unwrap();
        assert_eq!(cache.entries(), []);
    }

    #[test]
    fn named_pipe_at_the_cache_path_does_not_block_and_is_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = Cache { path: directory.path().join("pipe") };
        assert!(Command::new("mkfifo").arg(pipe.path()).status().unwrap().success());
        assert_eq!(pipe.entries(), []);
        assert_eq!(pipe.store(entry(8)).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert!(std::fs::metadata(pipe.path()).unwrap().file_type().is_fifo());
    }

    #[test]
    fn unreadable_cache_file_is_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        // No user can follow it, not even root.
        let closed = Cache { path: directory.path().join("closed") };
        symlink(closed.path(), closed.path()).unwrap();
        assert_eq!(closed.entries(), []);
        closed.store(entry(8)).unwrap_err();
        assert!(std::fs::symlink_metadata(closed.path()).unwrap().is_symlink());
    }

    #[test]
    fn lambda_is_stored_and_files_without_lambda_remain_valid() {
        let directory = tempfile::tempdir().unwrap();
        let cache = cache(&directory);
        let mut entry = entry(8);
        entry.network.multisend = Some("auto:nic".to_owned());
        entry.figures.lambda_thousandths = Some(2_750);
        cache.store(entry.clone()).unwrap();
        assert_eq!(cache.find(&entry.network), Some(entry.clone()));
        let text = std::fs::read_to_string(cache.path()).unwrap();
        let mut content: serde_json::Value = serde_json::from_str(&text).unwrap();
        let figures = content["networks"][0]["figures"].as_object_mut().unwrap();
        assert!(figures.remove("lambda_thousandths").is_some());
        std::fs::write(cache.path(), content.to_string()).unwrap();
        let without = Figures { lambda_thousandths: None, ..entry.figures };
        assert_eq!(cache.find(&entry.network).map(|it| it.figures), Some(without));
        // A hop never takes less time than its copy.
        std::fs::write(cache.path(), text.replace("2750", "999")).unwrap();
        assert_eq!(cache.find(&entry.network), None);
    }

    #[test]
    fn damaged_entry_does_not_affect_other_entries() {
        let directory = tempfile::tempdir().unwrap();
        let cache = cache(&directory);
        cache.store(entry(8)).unwrap();
        cache.store(entry(16)).unwrap();
        let text = std::fs::read_to_string(cache.path()).unwrap();
        std::fs::write(cache.path(), text.replacen("\"ranks\": 16", "\"ranks\": -1", 1)).unwrap();
        assert_eq!(cache.entries(), [entry(8)]);
    }

    #[test]
    fn quick_figures_expire_and_thorough_ones_do_not() {
        let directory = tempfile::tempdir().unwrap();
        let cache = cache(&directory);
        let mut old = entry(8);
        old.measured_unix_s -= QUICK_AGE_MAX.as_secs();
        cache.store(old.clone()).unwrap();
        assert_eq!(cache.find(&old.network), None);
        old.effort = Effort::Thorough;
        cache.store(old.clone()).unwrap();
        assert_eq!(cache.find(&old.network), Some(old));
    }

    #[test]
    fn quick_figures_from_the_future_are_ignored() {
        let directory = tempfile::tempdir().unwrap();
        let cache = cache(&directory);
        let mut entry = entry(8);
        entry.measured_unix_s += CLOCK_ERROR_S / 2;
        cache.store(entry.clone()).unwrap();
        assert_eq!(cache.find(&entry.network), Some(entry.clone()));
        entry.measured_unix_s += CLOCK_ERROR_S;
        cache.store(entry.clone()).unwrap();
        assert_eq!(cache.find(&entry.network), None);
    }

    #[test]
    fn quick_figures_are_medians_of_measurements_at_growing_intervals() {
        let directory = tempfile::tempdir().unwrap();
        let cache = cache(&directory);
        let level = |entry: &Entry| entry.figures.binomial.level_ns;
        let mut entry = entry(8);
        let measured = [9_000, 70_000, 8_000, 2_000, 9_500];
        entry.figures.binomial.level_ns = measured[0];
        let mut medians = vec![level(&entry)];
        for (again, level_ns) in QUICK_AGAIN.iter().zip(&measured[1..]) {
            assert!(!entry.is_due());
            entry.measured_unix_s = now_unix_s() - again.as_secs();
            assert!(entry.is_due());
            let mut figures = entry.figures;
            figures.binomial.level_ns = *level_ns;
            entry = entry.and(figures);
            medians.push(level(&entry));
            cache.store(entry.clone()).unwrap();
            assert_eq!(cache.find(&entry.network), Some(entry.clone()));
        }
        // Of two the lower one, because other activity of the machines makes times longer.
        assert_eq!(medians, [9_000, 9_000, 9_000, 8_000, 9_000]);
        assert_eq!(entry.measurements(), 5);
        entry.measured_unix_s = now_unix_s() - QUICK_AGE_MAX.as_secs() + 60;
        assert!(!entry.is_due());
        // Measurements of `omnes tune` stay.
        entry.rounds.clear();
        assert!(entry.is_due());
        entry.effort = Effort::Thorough;
        assert!(!entry.is_due());
    }

    #[test]
    fn oldest_networks_are_evicted_first() {
        let directory = tempfile::tempdir().unwrap();
        let cache = cache(&directory);
        let last = 2 + ENTRIES_MAX as u32;
        (3..=last + 3).for_each(|ranks| cache.store(entry(ranks)).unwrap());
        assert_eq!(cache.entries().len(), ENTRIES_MAX);
        assert_eq!(cache.find(&entry(3).network), None);
        assert!(cache.find(&entry(last).network).is_some());
    }

    #[test]
    fn tune_places_are_parsed() {
        assert_eq!("auto".parse(), Ok(Tune::Auto));
        assert_eq!("off".parse(), Ok(Tune::Off));
        assert_eq!("/a/b".parse(), Ok(Tune::In("/a/b".into())));
        assert!("tune.json".parse::<Tune>().unwrap_err().contains("auto, off or the path"));
        assert_eq!(Cache::of(&Tune::Off), None);
        assert_eq!(Cache::of(&Tune::In("/a/b".into())).unwrap().path(), Path::new("/a/b"));
    }
}
