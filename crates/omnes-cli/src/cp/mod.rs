//! `omnes cp`: copies a file or a directory from rank 0 to every rank.
//!
//! Runs in every rank, under any launcher. Rank 0 reads the source; every other rank writes a copy,
//! and rank 0 too if each rank has a destination of its own (`{rank}`).
//!
//! | module | what it does |
//! |---|---|
//! | `names` | destinations; names allowed in a stream |
//! | `frame`, `checksum` | the stream format, and its checksums |
//! | `source`, `sink`, `writer` | a tree to chunks, chunks to a tree |
//! | `walk` | the source's entries, by descriptors |
//! | `sizeless` | files without a meaningful size, as in `/proc` |
//! | `staging`, `leftovers`, `sys` | the hidden files of a copy until it is complete |
//! | `pump` | chunks from rank 0's source to every sink |
//! | `progress` | progress of the copy, on standard error |
//! | `verdict` | agreement that all copies are good |
//!
//! Guarantees: a copy appears whole or not at all, and on all ranks or on none, unless a rank or
//! its system fails at that very moment; every copy's checksum (blake3) has been compared with that
//! of the data read. If a rank fails or cannot write, all ranks end with an error that names it.
//! Exit status: 0; 1 if there are no copies; 2 for wrong usage or without a launcher.
//!
//! Memory: six chunks per rank. Not supported: owners, hard links, extended attributes; resuming an
//! interrupted copy.

mod checksum;
mod frame;
#[cfg(test)]
mod frame_tests;
mod leftovers;
mod names;
mod progress;
mod pump;
mod sink;
#[cfg(test)]
mod sink_tests;
mod sizeless;
mod source;
mod staging;
mod sys;
mod verdict;
mod walk;
mod writer;

use crate::bench::rank;
use crate::print;
use crate::units::{format_bytes, parse_bytes};
use anyhow::{Result, bail, ensure};
use omnes::{BcastAlgorithm, Communicator};
use progress::Progress;
use pump::{Ending, How, Whole};
use sink::{ReadBack, Sink};
use staging::{Destination, Durability, Existing, Kind, Staging};
use std::io::IsTerminal;
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use verdict::{Outcome, Verdict};

/// Longest chunk; a rank holds six.
const CHUNK_BYTES_MAX: u64 = 1 << 30;

const EXAMPLES: &str = "\
Examples:
  omnes run -n 8 --hosts a,b,c,d,e,f,g,h -- omnes cp model.bin /data/model.bin
  # eight copies on one machine
  omnes run -n 8 -- omnes cp model.bin out/{rank}/model.bin
  srun omnes cp --force checkpoint/ /scratch/checkpoint
  mpirun -n 4 omnes cp image.raw images/{rank}/  # one machine; keeps its name

Rank 0 reads SRC. Every other rank writes DEST; rank 0 writes one too if DEST
holds {rank}, which stands for the rank's number ({{ for a brace itself). DEST
is the name of the copy, unless it ends in /: then it is the directory that
the copy goes into. Missing directories above it are created. A copy appears
whole or not at all, and on all ranks or on none (unless a rank or its system
fails at that very moment). The output shows the first 16 digits of the BLAKE3
hash of the contents, as b3sum prints it for a file without holes.

Modes (without set-user-ID and set-group-ID), times, symbolic links, empty
directories and holes are kept; owners, hard links and extended attributes are
not.

Copy what nobody writes. A file that is written while it is read is an error,
but one that grows is copied as long as it was at first, and whether it was
written elsewhere, too, is not noticed. A rank that is killed (SIGKILL) leaves
a file or tree named .omnes-* beside DEST, which can be removed.";

/// Copy a file or a directory to every rank.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// File or directory on rank 0's machine
    #[arg(value_name = "SRC")]
    source: PathBuf,
    /// Name of the copy, the same for every rank except for {rank}
    #[arg(value_name = "DEST")]
    dest: PathBuf,
    /// Data of one broadcast, 256k to 1g; a rank holds six of these in memory
    #[arg(long, default_value = "4m", value_name = "BYTES", value_parser = parse_bytes)]
    chunk: u64,
    /// Algorithm (scheme) of the broadcasts: multicast, window, co-root=4, binomial, chain, ...
    #[arg(long, visible_alias = "scheme", value_name = "NAME")]
    algorithm: Option<BcastAlgorithm>,
    /// Replace the file, link or directory at DEST
    #[arg(long)]
    force: bool,
    /// Read every file back from the disk and compare it before the copy appears
    #[arg(long)]
    verify: bool,
    /// Write copies to the disk before they appear
    #[arg(long)]
    sync: bool,
    /// Do not show progress: no bar on a terminal; elsewhere, such as behind the prefix of
    /// `omnes run`, no line every 10 s
    #[arg(long)]
    no_progress: bool,
}

/// Runs the subcommand in this rank.
pub fn run(args: Args) -> Result<ExitCode> {
    let comm = rank::join("omnes run -n 8 -- omnes cp SRC DEST")?;
    if let Err(error) = args.check(comm.size()) {
        return Ok(rank::refuse(&comm, &error));
    }
    leftovers::remove_on_signal()?;
    // Exceeding the file size limit (`ulimit -f`) shall be an error of the write.
    // SAFETY: ignores a signal; no handler code is involved.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let copied = Job { comm: &comm, args: &args }.copy();
    Ok(rank::leave(comm, copied))
}

impl Args {
    fn check(&self, ranks: u32) -> Result<()> {
        let (least, most) = (frame::CHUNK_BYTES_MIN as u64, CHUNK_BYTES_MAX);
        ensure!(
            (least..=most).contains(&self.chunk),
            "--chunk of {}: must be from {} to {}",
            format_bytes(self.chunk),
            format_bytes(least),
            format_bytes(most)
        );
        names::destination(&self.dest, &self.source, 0).map_err(anyhow::Error::msg)?;
        if ranks == 1 && !names::names_rank(&self.dest) {
            bail!("a job of one rank has no rank to copy to; run `omnes run -n 8 -- omnes cp ...`");
        }
        Ok(())
    }

    fn existing(&self) -> Existing {
        if self.force { Existing::Replace } else { Existing::Keep }
    }

    fn read_back(&self) -> ReadBack {
        if self.verify { ReadBack::EveryFile } else { ReadBack::Off }
    }

    fn durability(&self) -> Durability {
        if self.sync { Durability::Synced } else { Durability::Lazy }
    }
}

/// Announcement by rank 0 before it sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Opening {
    /// `None`: the source cannot be read.
    kind: Option<Kind>,
    chunk_bytes: u32,
    /// Size of the data of a file; 0 for a directory.
    data_bytes: u64,
}

impl Opening {
    fn emit(self) -> [u8; 13] {
        let mut bytes = [0; 13];
        bytes[0] = match self.kind {
            None => 0,
            Some(Kind::File) => 1,
            Some(Kind::Directory) => 2,
        };
        bytes[1..5].copy_from_slice(&self.chunk_bytes.to_be_bytes());
        bytes[5..].copy_from_slice(&self.data_bytes.to_be_bytes());
        bytes
    }

    fn parse(bytes: [u8; 13]) -> Self {
        let [kind, c0, c1, c2, c3, data_bytes @ ..] = bytes;
        let kind = match kind {
            1 => Some(Kind::File),
            2 => Some(Kind::Directory),
            _ => None,
        };
        let chunk_bytes = u32::from_be_bytes([c0, c1, c2, c3]);
        Self { kind, chunk_bytes, data_bytes: u64::from_be_bytes(data_bytes) }
    }
}

/// Result of a transfer whose data are complete on all ranks.
struct Arrived {
    /// This rank's copy, ready to appear.
    copy: Option<Staging>,
    /// The stream that was sent.
    whole: Option<Whole>,
}

/// One rank's part in a copy operation.
struct Job<'a> {
    comm: &'a Communicator,
    args: &'a Args,
}

impl Job<'_> {
    /// Copies; true if all copies are in place. Failures have been reported. Collective.
    ///
    /// Errors: another rank is gone.
    fn copy(&self) -> Result<bool> {
        let dest = self.dest().map_err(anyhow::Error::msg)?;
        // All ranks have looked before any directory is created; see `Destination`.
        self.comm.barrier()?;
        let (opening, source_failure) = self.open_source()?;
        let staging = self.open_staging(opening, dest);
        let verdict = match (&staging, &source_failure) {
            (_, Some(failure)) | (Err(failure), None) => Verdict::of(Some(failure.clone())),
            (Ok(Some((staging, place))), None) => {
                let (place, replaced) = (Some(place.clone()), staging.replaced());
                Verdict { place, replaced, ..Verdict::default() }
            }
            (Ok(None), None) => Verdict::default(),
        };
        let source = match self.comm.rank() {
            0 => source::identities(&self.args.source),
            _ => Vec::new(),
        };
        let outcome = verdict::agree_beside(self.comm, &verdict, &source)?;
        let (true, Ok(staging)) = (outcome.is_good(), staging) else {
            return Ok(self.tell(&outcome, ""));
        };
        let start = Instant::now();
        let arrived = match self.transfer(opening, staging.map(|(staging, _)| staging))? {
            Ok(arrived) => arrived,
            Err(outcome) => return Ok(self.tell(&outcome, "")),
        };
        let committed =
            arrived.copy.map_or(Ok(()), |staging| staging.commit(self.args.durability()));
        let verdict = Verdict::of(committed.err().map(|error| error.to_string()));
        let committed = verdict::agree(self.comm, &verdict)?;
        if !committed.is_good() {
            let addition = match outcome.copies.saturating_sub(committed.failures()) {
                0 => "",
                _ => " (the other copies are in place)",
            };
            return Ok(self.tell(&committed, addition));
        }
        if self.comm.rank() == 0 {
            print_summary(opening.kind, arrived.whole, outcome.copies, start.elapsed())?;
        }
        Ok(true)
    }

    /// Shares with every rank what rank 0 will send; at rank 0 also the reason if it cannot.
    fn open_source(&self) -> Result<(Opening, Option<String>)> {
        let chunk_bytes = u32::try_from(self.args.chunk)?;
        let mut opening = Opening { kind: None, chunk_bytes, data_bytes: 0 };
        let mut failure = None;
        if self.comm.rank() == 0 {
            match source::inspect(&self.args.source) {
                Ok((kind, data_bytes)) => {
                    opening = Opening { kind: Some(kind), chunk_bytes, data_bytes };
                }
                Err(error) => failure = Some(error.to_string()),
            }
        }
        let opening = Opening::parse(rank::share(self.comm, opening.emit())?);
        ensure!(
            (frame::CHUNK_BYTES_MIN as u64..=CHUNK_BYTES_MAX).contains(&opening.chunk_bytes.into()),
            "rank 0 announces chunks of {} bytes",
            opening.chunk_bytes
        );
        Ok((opening, failure))
    }

    /// Destination of this rank's copy; `None` if it writes none.
    fn dest(&self) -> Result<Option<Destination>, String> {
        let (Args { source, dest, .. }, rank) = (self.args, self.comm.rank());
        let is_writer = rank != 0 || names::names_rank(dest);
        let path = is_writer.then(|| names::destination(dest, source, rank)).transpose()?;
        Ok(path.map(Destination::look_at))
    }

    /// Opens the staging of this rank's copy; also returns the name of its place.
    fn open_staging(
        &self,
        opening: Opening,
        dest: Option<Destination>,
    ) -> Result<Option<(Staging, String)>, String> {
        let (Some(kind), Some(dest)) = (opening.kind, dest) else { return Ok(None) };
        if kind == Kind::Directory {
            check_not_inside(dest.path(), &self.args.source)?;
        }
        let staging = Staging::open(dest, kind, opening.data_bytes, self.args.existing());
        let staging = staging.map_err(|error| error.to_string())?;
        let place = staging.place().map_err(|error| error.to_string())?;
        Ok(Some((staging, place)))
    }

    /// Transfers the data; returns the copy that may now appear, or the outcome if one failed.
    fn transfer(
        &self,
        opening: Opening,
        staging: Option<Staging>,
    ) -> Result<Result<Arrived, Outcome>> {
        let how = How { chunk_bytes: opening.chunk_bytes as usize, algorithm: self.args.algorithm };
        let sink = staging.map(|staging| Sink::new(staging, self.args.read_back()));
        let ending = match (self.comm.rank(), sink) {
            (0, sink) => {
                let mut progress = self.progress(opening);
                let ending = pump::send(self.comm, how, &self.args.source, sink, &mut progress);
                progress.end();
                ending?
            }
            (_, Some(sink)) => pump::receive(self.comm, how, sink)?,
            (_, None) => bail!("a rank that is not rank 0 has a copy"),
        };
        let whole = ending.whole;
        let (copy, failure) = settle(ending, self.args.durability());
        leftovers::end_if_signalled();
        let outcome = verdict::agree(self.comm, &Verdict::of(failure))?;
        Ok(if outcome.is_good() { Ok(Arrived { copy, whole }) } else { Err(outcome) })
    }

    fn progress(&self, opening: Opening) -> Progress {
        let is_directory = opening.kind == Some(Kind::Directory);
        match (self.args.no_progress, std::io::stderr().is_terminal()) {
            (true, _) => Progress::Hidden,
            (false, true) if is_directory => Progress::bar(source::count_bytes(&self.args.source)),
            (false, true) => Progress::bar(opening.data_bytes),
            // Counting a large tree first would be a wait for nobody's benefit.
            (false, false) => Progress::lines((!is_directory).then_some(opening.data_bytes)),
        }
    }

    /// Reports at rank 0, once for all ranks, why there is no copy. Always returns false.
    fn tell(&self, outcome: &Outcome, addition: &str) -> bool {
        if self.comm.rank() == 0 {
            for line in outcome.lines() {
                crate::stderr::notice(format_args!("{line}{addition}"));
            }
        }
        false
    }
}

/// This rank's copy if it is complete and as durable as required; otherwise the reason, if the
/// failure is this rank's.
fn settle(ending: Ending, durability: Durability) -> (Option<Staging>, Option<String>) {
    match (ending.source_failure, ending.copy, ending.whole) {
        (Some(failure), ..) | (None, Some(Err(failure)), _) => (None, Some(failure)),
        (None, Some(Ok(sink)), Some(whole)) => {
            let finished = sink.finish(&whole.sums).and_then(|staging| {
                staging.sync_contents(durability)?;
                Ok(staging)
            });
            match finished {
                Ok(staging) => (Some(staging), None),
                Err(error) => (None, Some(error.to_string())),
            }
        }
        // Rank 0 gave up because of another rank's failure, which that rank reports.
        (None, ..) => (None, None),
    }
}

/// Rejects a tree that would be copied into itself, which would never end.
fn check_not_inside(dest: &Path, source: &Path) -> Result<(), String> {
    // If a part of the path does not exist yet, the existing part decides.
    let there = dest.ancestors().skip(1).find_map(|above| {
        let path = if above.as_os_str().is_empty() { Path::new(".") } else { above };
        Some((above, path.canonicalize().ok()?))
    });
    let Some((above, place)) = there else { return Ok(()) };
    let to_make = dest.strip_prefix(above).unwrap_or(dest);
    if to_make.components().any(|component| component == Component::ParentDir) {
        let reason = "'..' follows a directory that is not there";
        return Err(format!("{}: {reason}", dest.display()));
    }
    if source.canonicalize().is_ok_and(|source| place.starts_with(source)) {
        return Err(format!("{}: lies inside of {}", dest.display(), source.display()));
    }
    Ok(())
}

fn print_summary(
    kind: Option<Kind>,
    whole: Option<Whole>,
    copies: u32,
    time: Duration,
) -> Result<()> {
    let Some(Whole { sums, totals }) = whole else { return Ok(()) };
    let gigabytes_per_s = totals.bytes as f64 / time.as_secs_f64() / 1e9;
    let noun = if copies == 1 { "copy" } else { "copies" };
    let files = match kind {
        Some(Kind::Directory) if totals.files == 1 => " of 1 file".to_owned(),
        Some(Kind::Directory) => format!(" of {} files", totals.files),
        _ => String::new(),
    };
    let size = format_bytes(totals.bytes);
    print::line(format_args!(
        "{copies} {noun}{files}, {size}, blake3 {sums}, {gigabytes_per_s:.2} GB/s"
    ))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openings_round_trip() {
        for kind in [None, Some(Kind::File), Some(Kind::Directory)] {
            let opening = Opening { kind, chunk_bytes: 4 << 20, data_bytes: 1 << 40 };
            assert_eq!(Opening::parse(opening.emit()), opening);
        }
    }

    #[test]
    fn copying_a_tree_into_itself_is_rejected() {
        let inside = check_not_inside(Path::new("src/a/b/c"), Path::new("src"));
        assert_eq!(inside, Err("src/a/b/c: lies inside of src".to_owned()));
        assert_eq!(check_not_inside(Path::new("src-copy"), Path::new("src")), Ok(()));
        assert_eq!(check_not_inside(Path::new("/"), Path::new("src")), Ok(()));
        for (dest, source) in [("../copy", "."), ("src/../copy", "src"), ("src/../copy/a", "src")] {
            assert_eq!(check_not_inside(Path::new(dest), Path::new(source)), Ok(()), "{dest}");
        }
        let hidden = check_not_inside(Path::new("no/../src/a"), Path::new("src"));
        assert_eq!(hidden, Err("no/../src/a: '..' follows a directory that is not there".into()));
    }
}
