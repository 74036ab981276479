//! `omnesd`, the node agent: lends slots of the kernel NIC to ranks that may not load programs.
//!
//! All of the work is done by [`omnes_nic::agent`]; this file has its arguments, signals, log and
//! exit status: 0 after TERM, INT, HUP or `omnes nic detach --all --end`, 2 usage or environment,
//! 77 cannot run here.

mod causes;

use anyhow::{Context, Result};
use clap::Parser;
use omnes_nic::NicError;
use omnes_nic::agent::limits::SLOTS_PER_USER;
use omnes_nic::agent::{Agent, AgentConfig, Event};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::collections::BTreeMap;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixStream};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Exit status of a program that cannot run here.
const STATUS_CANNOT_RUN: u8 = 77;
/// Number of slots.
const SLOTS_MAX: i64 = omnes_nic::SLOTS_MAX as i64;
/// Refusals that are logged in one [`WINDOW`]; further ones are counted.
const REFUSALS_MAX: u32 = 20;
/// Loans and returns of one user that are logged in one [`WINDOW`]; further ones are counted.
const LOANS_MAX: u32 = 200;
const WINDOW: Duration = Duration::from_secs(10);
/// Descriptors for all connections and slots, including those that a hostile user may hold.
const DESCRIPTORS: u64 = 16_384;

const EXAMPLES: &str = "\
Examples:
  omnesd                         # serve all Ethernet interfaces that have an address
  omnesd --interface eth1        # only this one
  systemctl enable --now omnesd  # with dist/omnesd.service installed
  omnes nic list                 # what it has attached and lent
  kill -TERM $(pidof omnesd)     # end it; nothing stays attached

Needs root; it uses the capabilities CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN.
One agent serves one network namespace; a container with a network of its own
needs an agent of its own. Ranks find the agent by themselves (OMNES_NIC=auto,
the default). A rank only gets slots for UDP ports that no other process uses,
and they are returned when it ends. When the agent ends, jobs lose the slots
that it has lent them.

Log: one line on stderr for each slot that is lent, returned or refused. If
there are too many, they are counted instead.";

/// Node agent: lends slots of the in-kernel eBPF program to unprivileged ranks.
#[derive(Parser)]
#[command(name = "omnesd", version, max_term_width = 100, after_help = EXAMPLES)]
struct Args {
    /// Interface to serve, even if it appears later; may be given several times [default: all
    /// Ethernet interfaces with an address]
    #[arg(long = "interface", value_name = "NAME")]
    interfaces: Vec<String>,
    /// Slots that one user may have, 1 to 64; each group of a job takes one or two per node
    #[arg(long, value_name = "N", default_value_t = SLOTS_PER_USER,
          value_parser = clap::value_parser!(u32).range(1..=SLOTS_MAX))]
    slots_per_user: u32,
}

fn main() -> ExitCode {
    match run(Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(format_args!("{}", causes::with_causes(&error)));
            let cannot = error.downcast_ref::<NicError>().is_some_and(|error| {
                matches!(error, NicError::NotPermitted | NicError::NoFirmware)
            });
            ExitCode::from(if cannot { STATUS_CANNOT_RUN } else { 2 })
        }
    }
}

fn run(args: Args) -> Result<()> {
    // Ranks trust only an agent that runs as root.
    // SAFETY: plain system call without arguments.
    if unsafe { libc::geteuid() } != 0 {
        return Err(NicError::NotPermitted).context("omnesd must be root");
    }
    omnes::descriptors::allow(DESCRIPTORS);
    let (stop, signalled) = UnixStream::pair().context("cannot make a pair of sockets")?;
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        let stop = stop.try_clone().context("cannot listen for signals")?;
        signal_hook::low_level::pipe::register(signal, stop)
            .context("cannot listen for signals")?;
    }
    let Args { interfaces, slots_per_user } = args;
    let mut log = Log::default();
    let config = AgentConfig { interfaces, slots_per_user };
    let mut agent = Agent::start(config, &mut |event| log.tell(event))?;
    say(format_args!("serving, version {}", env!("CARGO_PKG_VERSION")));
    tell_the_manager();
    let served = agent.serve(signalled.as_fd(), &mut |event| log.tell(event));
    // Detaches and closes before the end is logged.
    drop(agent);
    log.tell_unsaid();
    served?;
    say(format_args!("ended"));
    Ok(())
}

/// Writes one line of the log by one call.
fn say(line: std::fmt::Arguments<'_>) {
    // If stderr is closed, the line cannot be written anywhere.
    let _ = std::io::stderr().write_all(format!("omnesd: {line}\n").as_bytes());
}

/// Log; lines that a process can cause in any number are limited.
#[derive(Default)]
struct Log {
    window: Option<Instant>,
    refusals: u32,
    /// Number of loans and returns, by user.
    loans: BTreeMap<u32, u32>,
}

impl Log {
    fn tell(&mut self, event: &Event) {
        let now = Instant::now();
        let is_told = match event {
            Event::Refused { .. } => self.is_told_of_refusal(now),
            Event::Lent { tenant, .. } | Event::Returned { tenant, .. } => {
                self.is_told_of_loan(tenant.uid, now)
            }
            Event::Attached { .. } | Event::Detached { .. } | Event::Absent { .. } => true,
        };
        if is_told {
            say(format_args!("{event}"));
        }
    }

    /// Counts a refusal; true if it is to be logged.
    fn is_told_of_refusal(&mut self, now: Instant) -> bool {
        self.look_at_window(now);
        self.refusals += 1;
        self.refusals <= REFUSALS_MAX
    }

    /// Counts a loan or return of a user; true if it is to be logged.
    fn is_told_of_loan(&mut self, uid: u32, now: Instant) -> bool {
        self.look_at_window(now);
        let loans = self.loans.entry(uid).or_default();
        *loans += 1;
        *loans <= LOANS_MAX
    }

    fn look_at_window(&mut self, now: Instant) {
        if self.window.is_none_or(|start| now - start >= WINDOW) {
            self.tell_unsaid();
            self.window = Some(now);
        }
    }

    /// Logs the number of lines left out.
    fn tell_unsaid(&mut self) {
        let unsaid = self.refusals.saturating_sub(REFUSALS_MAX);
        self.refusals = 0;
        if unsaid > 0 {
            say(format_args!("refused {unsaid} more requests"));
        }
        for (uid, loans) in std::mem::take(&mut self.loans) {
            let unsaid = loans.saturating_sub(LOANS_MAX);
            if unsaid > 0 {
                say(format_args!("uid {uid}: {unsaid} more slots were lent or returned"));
            }
        }
    }
}

/// Notifies systemd, if it has started this process, that ranks are now served (sd_notify(3)).
fn tell_the_manager() {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let bytes = name.as_encoded_bytes();
    let address = match bytes.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&name),
    };
    let told =
        address.and_then(|address| UnixDatagram::unbound()?.send_to_addr(b"READY=1", &address));
    if let Err(error) = told {
        say(format_args!("cannot tell {}: {error}", name.to_string_lossy()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logged_refusals_are_limited_per_window() {
        let (mut log, start) = (Log::default(), Instant::now());
        let told = |log: &mut Log, at| (0..50).filter(|_| log.is_told_of_refusal(at)).count();
        assert_eq!(told(&mut log, start), REFUSALS_MAX as usize);
        assert_eq!(told(&mut log, start + WINDOW / 2), 0);
        assert_eq!(told(&mut log, start + WINDOW), REFUSALS_MAX as usize);
    }

    #[test]
    fn logged_loans_are_limited_per_user_and_window() {
        let (mut log, start) = (Log::default(), Instant::now());
        let told = |log: &mut Log, uid, at| {
            (0..2 * LOANS_MAX).filter(|_| log.is_told_of_loan(uid, at)).count()
        };
        for uid in [0, 60001] {
            assert_eq!(told(&mut log, uid, start), LOANS_MAX as usize);
            assert_eq!(told(&mut log, uid, start + WINDOW / 2), 0);
        }
        assert!(log.is_told_of_refusal(start));
        assert_eq!(told(&mut log, 0, start + WINDOW), LOANS_MAX as usize);
        assert_eq!(log.loans.len(), 1);
    }

    #[test]
    fn out_of_range_arguments_are_rejected() {
        let parse = |words: &[&str]| Args::try_parse_from(["omnesd"].iter().chain(words));
        assert_eq!(parse(&[]).map(|args| args.slots_per_user).ok(), Some(32));
        let named = parse(&["--interface", "a", "--interface", "b"]);
        assert_eq!(named.map(|args| args.interfaces).ok(), Some(vec!["a".into(), "b".into()]));
        for slots in ["0", "65", "many"] {
            assert!(parse(&["--slots-per-user", slots]).is_err(), "{slots}");
        }
    }
}
