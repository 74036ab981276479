//! Settings of this process from the environment, in particular the launcher's.
//!
//! Several launchers' variables may be set at once: `omnes run` inside a Slurm job, or torchrun
//! under mpirun. The launcher nearest to the process is used, in the order of
//! [`Launcher::nearest_first`].

use crate::ancestors;
use crate::barrier::NicChoice;
use crate::bytes;
use crate::config::{Config, MTU_BYTES, POOL_PACKETS, mtu_allowed, pool_packets_allowed};
use crate::error::Error;
use crate::launcher::Launcher;
use omnes_net::TIMEOUT_MIN;
use omnes_wire::JobKey;
use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

/// Join timeout for the ranks of an exchange, all of which are already running.
const JOIN_TIMEOUT_MET: Duration = Duration::from_secs(20);
/// Time before the ranks of an exchange load the kernel NIC's firmware, unless the user requests
/// it: loading takes 30 ms of a core for each of them, and they wait for the kernel several times,
/// also at the end. Many MPI programs end earlier.
const NIC_AFTER_MET: Duration = Duration::from_secs(1);
/// Range of the ports that are derived from a number: below those that Linux assigns.
const PORT_FIRST: u32 = 20_000;
const PORTS: u32 = 12_768;
/// Peer timeout for the ranks of an exchange: their program may be stopped in a debugger, and its
/// own launcher notices when ranks end.
const PEER_TIMEOUT_MET: Duration = Duration::from_secs(30);

/// Reads variables from the environment or, in tests, from elsewhere.
struct Environment<F>(F);

impl<F: Fn(&str) -> Option<String>> Environment<F> {
    fn text(&self, name: &str) -> Option<String> {
        (self.0)(name).filter(|value| !value.is_empty())
    }

    fn value<T: FromStr>(&self, name: &str) -> Result<Option<T>, Error>
    where
        T::Err: Display,
    {
        self.parsed(name, |text| text.parse::<T>().map_err(|error| error.to_string()))
    }

    fn duration(&self, name: &str) -> Result<Option<Duration>, Error> {
        self.parsed(name, omnes_net::duration::parse)
    }

    fn timeout(&self, name: &str) -> Result<Option<Duration>, Error> {
        self.parsed(name, |text| match omnes_net::duration::parse(text)? {
            time if time < TIMEOUT_MIN => {
                Err(format!("must be at least {}", omnes_net::duration::shortest(TIMEOUT_MIN)))
            }
            time => Ok(time),
        })
    }

    /// An integer from 0 to `most`.
    fn number<T>(&self, name: &str, most: T) -> Result<Option<T>, Error>
    where
        T: TryFrom<u64> + Display,
    {
        self.parsed(name, |text| {
            let number = text.parse::<u64>().ok().and_then(|number| T::try_from(number).ok());
            number.ok_or_else(|| format!("must be a whole number from 0 to {most}"))
        })
    }

    fn bytes(&self, name: &str) -> Result<Option<u32>, Error> {
        self.parsed(name, |text| {
            u32::try_from(bytes::parse(text)?).map_err(|_| format!("must be at most {}", u32::MAX))
        })
    }

    fn pool_packets(&self) -> Result<Option<u32>, Error> {
        self.parsed("OMNES_POOL_PACKETS", |text| match text.parse() {
            Ok(slots) if POOL_PACKETS.contains(&slots) => Ok(slots),
            _ => Err(format!("must be {}", pool_packets_allowed())),
        })
    }

    fn mtu_bytes(&self) -> Result<Option<u32>, Error> {
        self.parsed("OMNES_MTU", |text| match bytes::parse(text).map(u32::try_from) {
            Ok(Ok(bytes)) if MTU_BYTES.contains(&bytes) => Ok(bytes),
            _ => Err(format!("must be {}", mtu_allowed())),
        })
    }

    fn parsed<T>(
        &self,
        name: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, Error> {
        let Some(value) = self.text(name) else { return Ok(None) };
        match parse(&value) {
            Ok(parsed) => Ok(Some(parsed)),
            Err(reason) => Err(Error::InvalidVariable { name: name.to_owned(), value, reason }),
        }
    }

    /// The nearest launcher, with rank and size.
    fn launcher(&self) -> Result<(Launcher, u32, u32), Error> {
        for launcher in Launcher::nearest_first(|name| self.text(name)) {
            let rank = self.number(launcher.rank, u32::MAX)?;
            let size = self.number(launcher.size, u32::MAX)?;
            match (rank, size) {
                (Some(rank), Some(size)) if rank < size => return Ok((launcher, rank, size)),
                (Some(rank), Some(size)) => {
                    return Err(Error::RankOutOfRange { rank, size });
                }
                _ => {}
            }
        }
        Err(Error::NoLauncher)
    }

    /// The address at which rank 0 listens for the others.
    fn rendezvous(
        &self,
        launcher: Launcher,
        rank: u32,
        size: u32,
        local_size: Option<u32>,
    ) -> Option<String> {
        let by_name = || self.rendezvous_of(launcher.name, size, local_size);
        // Slurm may also set the variables of an MPI (`srun --mpi=pmi2`).
        let is_slurm = || {
            self.text("SLURM_PROCID").is_some_and(|text| text.parse() == Ok(rank))
                && self.text("SLURM_NTASKS").is_some_and(|text| text.parse() == Ok(size))
        };
        let by_slurm = || self.rendezvous_of("Slurm", size, local_size).filter(|_| is_slurm());
        // A single rank has no peers to meet.
        let alone = || (size == 1).then(|| "127.0.0.1:0".to_owned());
        self.text("OMNES_RENDEZVOUS").or_else(by_name).or_else(by_slurm).or_else(alone)
    }

    /// As [`Self::rendezvous`], according to the launcher `name`.
    fn rendezvous_of(&self, name: &str, size: u32, local_size: Option<u32>) -> Option<String> {
        match name {
            "torchrun" => {
                // The port itself belongs to torchrun's store.
                let port: u16 = self.text("MASTER_PORT")?.parse().ok()?;
                Some(format!("{}:{}", self.text("MASTER_ADDR")?, port.checked_add(1)?))
            }
            "Slurm" => {
                let nodes = self.text("SLURM_STEP_NODELIST").or(self.text("SLURM_NODELIST"))?;
                let job: u32 = self.text("SLURM_JOB_ID")?.parse().ok()?;
                let step: u32 = self.text("SLURM_STEP_ID").and_then(|s| s.parse().ok())?;
                let port = guessed_port(job.wrapping_mul(31).wrapping_add(step));
                Some(format!("{}:{port}", first_host(&nodes)?))
            }
            // All ranks are on this machine, so all have the same daemon as an ancestor.
            _ if local_size == Some(size) => {
                Some(format!("127.0.0.1:{}", guessed_port(ancestors::job_number())))
            }
            _ => None,
        }
    }
}

impl Config {
    /// Settings according to the environment; see [`VARIABLES`](crate::VARIABLES).
    ///
    /// # Errors
    /// [`Error::NoLauncher`] without rank and size, [`Error::InvalidVariable`] for an
    /// invalid value or a rendezvous address that cannot be guessed.
    pub fn from_env() -> Result<Self, Error> {
        Self::from_environment(variable)
    }

    fn from_environment(variable: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let environment = Environment(variable);
        let (launcher, rank, size) = environment.launcher()?;
        if rank >= size {
            return Err(Error::InvalidVariable {
                name: launcher.rank.to_owned(),
                value: rank.to_string(),
                reason: format!("must be less than {}, which is {size}", launcher.size),
            });
        }
        let local_size = environment.text(launcher.local_size).and_then(|text| text.parse().ok());
        let rendezvous = environment.rendezvous(launcher, rank, size, local_size);
        let rendezvous = rendezvous.ok_or_else(|| Error::InvalidVariable {
            name: "OMNES_RENDEZVOUS".to_owned(),
            value: String::new(),
            reason: format!(
                "{}set it to host:port of rank 0's host, with a free port, for all ranks",
                match launcher.name {
                    // Set by hand: `omnes run` always sets the address.
                    "omnes run" => String::new(),
                    // In a batch script there is a job, but no step that has ranks.
                    "Slurm" => "Slurm does not say where rank 0 runs; use srun, or ".to_owned(),
                    name => format!("{name} does not say where rank 0 runs: "),
                }
            ),
        })?;
        let mut config = Self::new(rank, size, rendezvous);
        environment.fill(&mut config)?;
        Ok(config)
    }

    /// Checks whether `value` is valid for the variable `name`, one of
    /// [`VARIABLES`](crate::VARIABLES), regardless of all others. Other names are never rejected.
    ///
    /// # Errors
    /// [`Error::InvalidVariable`], as [`Config::from_env`] returns it.
    pub fn check_variable(name: &str, value: &str) -> Result<(), Error> {
        let environment = Environment(|other: &str| (other == name).then(|| value.to_owned()));
        environment.number("OMNES_RANK", u32::MAX)?;
        environment.number("OMNES_SIZE", u32::MAX)?;
        environment.fill(&mut Self::new(0, 1, String::new()))
    }

    /// Settings according to the environment for the ranks of an exchange, which provides rank and
    /// size instead of a launcher.
    pub(crate) fn for_exchange(rank: u32, size: u32) -> Result<Self, Error> {
        Self::for_exchange_in(Environment(variable), rank, size)
    }

    fn for_exchange_in(
        environment: Environment<impl Fn(&str) -> Option<String>>,
        rank: u32,
        size: u32,
    ) -> Result<Self, Error> {
        let rendezvous = environment.text("OMNES_RENDEZVOUS").unwrap_or_default();
        let mut config = Self::new(rank, size, rendezvous);
        (config.join_timeout, config.peer_timeout) = (JOIN_TIMEOUT_MET, PEER_TIMEOUT_MET);
        environment.fill(&mut config)?;
        if config.nic == NicChoice::Auto {
            config.nic_after = NIC_AFTER_MET;
        }
        Ok(config)
    }
}

impl<F: Fn(&str) -> Option<String>> Environment<F> {
    fn fill(&self, config: &mut Config) -> Result<(), Error> {
        config.local_size = self.number("OMNES_LOCAL_SIZE", u32::MAX)?;
        let hex = |text: &str| JobKey::from_hex(text).map_err(|error| error.to_string());
        // An empty key was intended as a key, but would protect nothing.
        if let Some(text) = (self.0)("OMNES_JOB_KEY") {
            // A secret must not appear in an error.
            config.job_key = Some(hex(&text).map_err(|reason| Error::InvalidVariable {
                name: "OMNES_JOB_KEY".to_owned(),
                value: "(secret)".to_owned(),
                reason,
            })?);
        }
        config.interface = self.value("OMNES_INTERFACE")?;
        config.bcast = self.value("OMNES_BCAST")?;
        config.tune = self.value("OMNES_TUNE")?.unwrap_or_default();
        config.network_name = self.text("OMNES_NETWORK");
        config.barrier = self.value("OMNES_BARRIER")?;
        config.nic = self.value("OMNES_NIC")?.unwrap_or(config.nic);
        config.multicast = self.value("OMNES_MULTICAST")?.unwrap_or(config.multicast);
        config.multisend = self.value("OMNES_MULTISEND")?.unwrap_or(config.multisend);
        if let Some((group, port)) = self.parsed("OMNES_MULTICAST_GROUP", parse_group)? {
            (config.multicast_group, config.multicast_port) = (Some(group), port);
        }
        let ttl = self.number("OMNES_MULTICAST_TTL", u8::MAX)?;
        config.multicast_ttl = ttl.unwrap_or(config.multicast_ttl);
        let set = |slot: &mut Duration, value: Option<Duration>| *slot = value.unwrap_or(*slot);
        set(&mut config.peer_timeout, self.timeout("OMNES_PEER_TIMEOUT")?);
        set(&mut config.join_timeout, self.timeout("OMNES_JOIN_TIMEOUT")?);
        config.spin = self.duration("OMNES_SPIN")?;
        config.yield_time = self.duration("OMNES_YIELD")?;
        config.time_slice = self.duration("OMNES_TIME_SLICE")?;
        config.eager_bytes = self.bytes("OMNES_EAGER_BYTES")?.unwrap_or(config.eager_bytes);
        config.pool_packets = self.pool_packets()?.unwrap_or(config.pool_packets);
        config.mtu_bytes = self.mtu_bytes()?;
        if let Some((gso, gro)) = self.parsed("OMNES_OFFLOADS", parse_offloads)? {
            (config.offloads.gso, config.offloads.gro) = (gso, gro);
        }
        if let Some(is_on) = self.parsed("OMNES_SHM", parse_switch)? {
            config.shared_memory = is_on;
        }
        if let Some(is_on) = self.parsed("OMNES_ENCRYPT", parse_switch)? {
            config.encryption = is_on;
        }
        if let Some(is_on) = self.parsed("OMNES_COMPARE", parse_switch)? {
            config.compare_calls = is_on;
        }
        if let Some(place) = self.value("OMNES_STATS")? {
            config.stats = place;
        }
        Ok(())
    }
}

/// Value of a variable. A value that is not valid text is invalid; it does not count as unset.
fn variable(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

fn guessed_port(number: u32) -> u32 {
    PORT_FIRST + number % PORTS
}

/// Parses `239.192.1.2`, `239.192.1.2:5000` or `[ff15::1]:5000`.
fn parse_group(text: &str) -> Result<(IpAddr, Option<u16>), String> {
    let with_port = text.parse::<SocketAddr>().map(|both| (both.ip(), Some(both.port())));
    let group = with_port.or_else(|_| text.parse().map(|address| (address, None)));
    match group {
        Ok((_, Some(0))) => Err("port 0 is not a valid port".to_owned()),
        Ok((address, port)) if address.is_multicast() => Ok((address, port)),
        Ok((address, _)) => Err(format!("{address} is not a multicast address")),
        Err(_) => Err("must be an address or address:port, such as 239.192.1.2:5000".to_owned()),
    }
}

fn parse_switch(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("must be on or off".to_owned()),
    }
}

fn parse_offloads(text: &str) -> Result<(bool, bool), String> {
    match text {
        "both" => Ok((true, true)),
        "gso" => Ok((true, false)),
        "gro" => Ok((false, true)),
        "none" => Ok((false, false)),
        _ => Err("must be both, gso, gro or none".to_owned()),
    }
}

/// First host of a Slurm list such as `rack[02-05,9],login`.
fn first_host(nodes: &str) -> Option<String> {
    let end = nodes.find([',', '[']).unwrap_or(nodes.len());
    if !nodes[end..].starts_with('[') {
        return Some(nodes[..end].to_owned());
    }
    let inside = nodes[end + 1..].split([',', '-', ']']).next()?;
    Some(format!("{}{inside}", &nodes[..end]))
}

#[cfg(test)]
#[path = "environment_tests.rs"]
mod tests;
