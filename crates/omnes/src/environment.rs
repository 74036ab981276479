//! What the launcher's environment says about this process.
//!
//! Several launchers' variables may be set at once: `omnes run` inside a Slurm job, or torchrun
//! under mpirun. The nearest to the process is used, as [`Launcher::nearest_first`] orders them.

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

/// Wait for the ranks of an exchange, all of which are running already.
const JOIN_TIMEOUT_MET: Duration = Duration::from_secs(20);
/// Time before the ranks of an exchange load the kernel NIC's firmware, if nobody asks for it: that
/// takes 0.1 to 0.2 s of a core for each of them, and many MPI programs are over before.
const NIC_AFTER_MET: Duration = Duration::from_secs(1);
/// Range of the ports that are guessed: below those that Linux assigns.
const PORT_FIRST: u32 = 20_000;
const PORTS: u32 = 12_768;
/// Peer timeout for the ranks of an exchange: their program may be stopped in a debugger, and its
/// own launcher notices when they end.
const PEER_TIMEOUT_MET: Duration = Duration::from_secs(30);

/// Reads variables: those of the environment, except in tests.
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

    /// A whole number up to `most`.
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

    /// Where rank 0 listens for the others.
    fn rendezvous(
        &self,
        launcher: Launcher,
        rank: u32,
        size: u32,
        local_size: Option<u32>,
    ) -> Option<String> {
        let by_name = || self.rendezvous_of(launcher.name, size, local_size);
        // Slurm starts processes with the variables of an MPI too (`srun --mpi=pmi2`).
        let is_slurm = || {
            self.text("SLURM_PROCID").is_some_and(|text| text.parse() == Ok(rank))
                && self.text("SLURM_NTASKS").is_some_and(|text| text.parse() == Ok(size))
        };
        let by_slurm = || self.rendezvous_of("Slurm", size, local_size).filter(|_| is_slurm());
        // A single rank need not meet others.
        let alone = || (size == 1).then(|| "127.0.0.1:0".to_owned());
        self.text("OMNES_RENDEZVOUS").or_else(by_name).or_else(by_slurm).or_else(alone)
    }

    /// The same, according to the launcher `name`.
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
            // All on this machine, so all have the same daemon above them.
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
    /// # Errors [`Error::NoLauncher`] without rank and size, [`Error::InvalidVariable`] for an
    /// invalid value or a rendezvous address that cannot be guessed.
    pub fn from_env() -> Result<Self, Error> {
        Self::from_environment(variable)
    }

    fn from_environment(variable: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let environment = Environment(variable);
        let (launcher, rank, size) = environment.launcher()?;
        let local_size = environment.text(launcher.local_size).and_then(|text| text.parse().ok());
        let rendezvous = environment.rendezvous(launcher, rank, size, local_size);
        let rendezvous = rendezvous.ok_or_else(|| Error::InvalidVariable {
            name: "OMNES_RENDEZVOUS".to_owned(),
            value: String::new(),
            reason: format!(
                "{}set it to host:port of rank 0's host, with a free port, for all ranks",
                match launcher.name {
                    // Set by hand: `omnes run` always says where.
                    "omnes run" => String::new(),
                    // In a batch script there is a job, and no step that has ranks.
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
    /// [`VARIABLES`](crate::VARIABLES), regardless of all others. Other names are never refused.
    ///
    /// # Errors
    /// [`Error::InvalidVariable`], as [`Config::from_env`] returns it.
    pub fn check_variable(name: &str, value: &str) -> Result<(), Error> {
        let environment = Environment(|other: &str| (other == name).then(|| value.to_owned()));
        environment.number("OMNES_RANK", u32::MAX)?;
        environment.number("OMNES_SIZE", u32::MAX)?;
        environment.fill(&mut Self::new(0, 1, String::new()))
    }

    /// Settings according to the environment for the ranks of an exchange, which have their numbers
    /// from that and not from a launcher.
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
        // An empty key was meant to be one, but would protect nothing.
        if let Some(text) = (self.0)("OMNES_JOB_KEY") {
            // A secret must not show up in an error.
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

/// A variable. One that is not text has an invalid value; it does not count as unset.
fn variable(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

fn guessed_port(number: u32) -> u32 {
    PORT_FIRST + number % PORTS
}

/// `239.192.1.2`, `239.192.1.2:5000`, `[ff15::1]:5000`.
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
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::bcast::tune::Tune;
    use crate::config::Multicast;
    use omnes_net::live::StatsPlace;

    fn config(set: &[(&str, &str)]) -> Result<Config, Error> {
        Config::from_environment(|name| {
            set.iter().find(|(other, _)| *other == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn three_variables_are_enough() {
        let config = config(&[
            ("OMNES_RANK", "2"),
            ("OMNES_SIZE", "8"),
            ("OMNES_RENDEZVOUS", "10.0.0.1:4000"),
        ])
        .unwrap();
        assert_eq!((config.rank, config.size), (2, 8));
        assert_eq!(config.rendezvous, "10.0.0.1:4000");
        assert!(config.job_key.is_none());
    }

    #[test]
    fn each_launcher_is_understood() {
        let torchrun = [
            ("RANK", "1"),
            ("WORLD_SIZE", "4"),
            ("MASTER_ADDR", "node1"),
            ("MASTER_PORT", "29500"),
        ];
        assert_eq!(config(&torchrun).unwrap().rendezvous, "node1:29501");
        let slurm = [
            ("SLURM_PROCID", "1"),
            ("SLURM_NTASKS", "4"),
            ("SLURM_STEP_NODELIST", "rack[02-05,9]"),
            ("SLURM_JOB_ID", "100"),
            ("SLURM_STEP_ID", "0"),
        ];
        assert_eq!(config(&slurm).unwrap().rendezvous, "rack02:23100");
        let local = [("PMI_RANK", "1"), ("PMI_SIZE", "2"), ("MPI_LOCALNRANKS", "2")];
        assert!(config(&local).unwrap().rendezvous.starts_with("127.0.0.1:"));
        let spread = [("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "2")];
        let error = config(&spread).unwrap_err().to_string();
        let expected = "OMNES_RENDEZVOUS is not set: Open MPI does not say where rank 0 runs: ";
        assert!(error.starts_with(expected), "{error}");
        let by_hand = [("OMNES_RANK", "0"), ("OMNES_SIZE", "2")];
        let error = config(&by_hand).unwrap_err().to_string();
        assert!(error.starts_with("OMNES_RENDEZVOUS is not set: set it to host:port"), "{error}");
    }

    #[test]
    fn who_is_alone_needs_no_place_to_meet() {
        for alone in [
            [("RANK", "0"), ("WORLD_SIZE", "1")],
            [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "1")],
            [("PMI_RANK", "0"), ("PMI_SIZE", "1")],
        ] {
            assert_eq!(config(&alone).unwrap().rendezvous, "127.0.0.1:0");
        }
    }

    #[test]
    fn ports_that_are_guessed_are_none_that_the_system_hands_out() {
        for number in [0, 12_767, 12_768, u32::MAX] {
            assert!((20_000..32_768).contains(&guessed_port(number)));
        }
    }

    #[test]
    fn torchrun_is_nearer_than_what_starts_it() {
        let torchrun = [
            ("RANK", "5"),
            ("WORLD_SIZE", "8"),
            ("MASTER_ADDR", "node1"),
            ("MASTER_PORT", "29500"),
            ("TORCHELASTIC_RUN_ID", "none"),
        ];
        let slurm = [("SLURM_PROCID", "1"), ("SLURM_NTASKS", "2")];
        let mpirun = [("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "2")];
        for outer in [slurm, mpirun] {
            let config = config(&[&torchrun[..], &outer].concat()).unwrap();
            assert_eq!((config.rank, config.size), (5, 8));
            assert_eq!(config.rendezvous, "node1:29501");
        }
    }

    #[test]
    fn ranks_that_slurm_starts_with_the_variables_of_an_mpi_meet_where_slurm_says() {
        let slurm = [
            ("PMI_RANK", "1"),
            ("PMI_SIZE", "4"),
            ("SLURM_NTASKS", "4"),
            ("SLURM_STEP_NODELIST", "rack[02-05]"),
            ("SLURM_JOB_ID", "100"),
            ("SLURM_STEP_ID", "0"),
        ];
        let with = |task| config(&[&slurm[..], &[("SLURM_PROCID", task)]].concat());
        assert_eq!(with("1").unwrap().rendezvous, "rack02:23100");
        // Ranks of a job that mpirun has started in a task of Slurm's.
        assert!(with("0").unwrap_err().to_string().contains("OMNES_RENDEZVOUS"));
    }

    #[test]
    fn nearest_launcher_wins_and_none_is_an_error() {
        let both = [
            ("RANK", "1"),
            ("WORLD_SIZE", "2"),
            ("OMNES_RANK", "5"),
            ("OMNES_SIZE", "6"),
            ("OMNES_RENDEZVOUS", "h:1"),
        ];
        assert_eq!(config(&both).unwrap().rank, 5);
        assert!(matches!(config(&[]), Err(Error::NoLauncher)));
    }

    #[test]
    fn wrong_values_are_named() {
        let base = [("OMNES_RANK", "0"), ("OMNES_SIZE", "1")];
        let with = |name, value| config(&[base[0], base[1], (name, value)]);
        let error = with("OMNES_PEER_TIMEOUT", "5x").unwrap_err().to_string();
        assert!(error.contains("OMNES_PEER_TIMEOUT=5x") && error.contains("ms, s"), "{error}");
        let error = with("OMNES_PEER_TIMEOUT", "5").unwrap_err().to_string();
        assert!(error.contains("OMNES_PEER_TIMEOUT=5") && error.contains("unit"), "{error}");
        let error = with("OMNES_JOB_KEY", "topsecret").unwrap_err().to_string();
        assert!(!error.contains("topsecret"));
        assert!(with("OMNES_JOB_KEY", "").unwrap_err().to_string().contains("OMNES_JOB_KEY"));
        for name in ["OMNES_PEER_TIMEOUT", "OMNES_JOIN_TIMEOUT"] {
            let error = with(name, "9ms").unwrap_err().to_string();
            assert!(error.contains(name) && error.contains("at least 10ms"), "{error}");
        }
        assert_eq!(
            with("OMNES_PEER_TIMEOUT", "250ms").unwrap().peer_timeout,
            Duration::from_millis(250)
        );
    }

    #[test]
    fn multicast_is_switched_and_its_group_named() {
        let base = [("OMNES_RANK", "0"), ("OMNES_SIZE", "1")];
        let with = |name, value| config(&[base[0], base[1], (name, value)]);
        assert_eq!(config(&base).unwrap().multicast, Multicast::Auto);
        assert_eq!(with("OMNES_MULTICAST", "off").unwrap().multicast, Multicast::Off);
        assert_eq!(with("OMNES_MULTICAST_TTL", "3").unwrap().multicast_ttl, 3);
        let group = |text| {
            let config = with("OMNES_MULTICAST_GROUP", text)?;
            Ok::<_, Error>((config.multicast_group.unwrap().to_string(), config.multicast_port))
        };
        assert_eq!(group("239.192.1.2").unwrap(), ("239.192.1.2".to_owned(), None));
        assert_eq!(group("239.192.1.2:5000").unwrap(), ("239.192.1.2".to_owned(), Some(5000)));
        assert_eq!(group("ff15::9").unwrap(), ("ff15::9".to_owned(), None));
        assert_eq!(group("[ff15::9]:7").unwrap(), ("ff15::9".to_owned(), Some(7)));
        for (name, value, words) in [
            ("OMNES_MULTICAST", "yes", "must be auto, on or off"),
            ("OMNES_MULTICAST_GROUP", "10.0.0.1", "10.0.0.1 is not a multicast address"),
            ("OMNES_MULTICAST_GROUP", "239.1.1.1:0", "port 0"),
            ("OMNES_MULTICAST_GROUP", "group", "address:port"),
            ("OMNES_MULTICAST_TTL", "256", "=256: must be a whole number from 0 to 255"),
            ("OMNES_MULTICAST_TTL", "zz", "=zz: must be a whole number from 0 to 255"),
            ("OMNES_RANK", "x", "=x: must be a whole number"),
            ("OMNES_EAGER_BYTES", "many", "a number of bytes, or one with k, m or g"),
            ("OMNES_EAGER_BYTES", "4g", "must be at most 4294967295"),
            ("OMNES_BCAST", "bush", "co-root=4+skewed=8"),
        ] {
            let error = match name {
                "OMNES_RANK" => config(&[(name, value), base[1]]).unwrap_err().to_string(),
                _ => with(name, value).unwrap_err().to_string(),
            };
            assert!(error.contains(words) && error.contains(name), "{error}");
            let checked = Config::check_variable(name, value).unwrap_err().to_string();
            assert_eq!(checked, error);
        }
        assert_eq!(with("OMNES_EAGER_BYTES", "64k").unwrap().eager_bytes, 65_536);
        assert!(Config::check_variable("OMNES_EAGER_BYTES", "64k").is_ok());
        assert!(Config::check_variable("HOME", "/").is_ok());
    }

    #[test]
    fn figures_are_switched_off_or_moved_and_networks_named() {
        let base = [("OMNES_RANK", "0"), ("OMNES_SIZE", "1")];
        let with = |name, value| config(&[base[0], base[1], (name, value)]);
        assert_eq!(config(&base).unwrap().tune, Tune::Auto);
        assert_eq!(with("OMNES_TUNE", "off").unwrap().tune, Tune::Off);
        assert_eq!(with("OMNES_TUNE", "/a/b").unwrap().tune, Tune::In("/a/b".into()));
        let error = with("OMNES_TUNE", "never").unwrap_err().to_string();
        assert!(error.contains("OMNES_TUNE=never") && error.contains("auto, off"), "{error}");
        assert_eq!(config(&base).unwrap().network_name, None);
        assert_eq!(with("OMNES_NETWORK", "lab 7").unwrap().network_name.as_deref(), Some("lab 7"));
    }

    #[test]
    fn live_counters_are_switched_off_or_moved() {
        let base = [("OMNES_RANK", "0"), ("OMNES_SIZE", "1")];
        let with = |value| config(&[base[0], base[1], ("OMNES_STATS", value)]);
        assert_eq!(config(&base).unwrap().stats, StatsPlace::Usual);
        assert_eq!(with("off").unwrap().stats, StatsPlace::Off);
        assert_eq!(with("/a/b").unwrap().stats, StatsPlace::In("/a/b".into()));
        let error = with("never").unwrap_err().to_string();
        assert!(error.contains("OMNES_STATS=never") && error.contains("on, off"), "{error}");
    }

    #[test]
    fn shared_memory_is_switched_off() {
        let base = [("OMNES_RANK", "0"), ("OMNES_SIZE", "1")];
        let with = |value| config(&[base[0], base[1], ("OMNES_SHM", value)]);
        assert!(config(&base).unwrap().shared_memory && with("on").unwrap().shared_memory);
        assert!(!with("off").unwrap().shared_memory);
        let error = with("no").unwrap_err().to_string();
        assert!(error.contains("OMNES_SHM=no") && error.contains("on or off"), "{error}");
    }

    #[test]
    fn pool_holds_a_packet_at_least() {
        let with = |value| {
            config(&[("OMNES_RANK", "0"), ("OMNES_SIZE", "1"), ("OMNES_POOL_PACKETS", value)])
        };
        assert_eq!(with("1").unwrap().pool_packets, 1);
        assert_eq!(with("16777216").unwrap().pool_packets, 16_777_216);
        for value in ["0", "16777217", "many"] {
            let error = with(value).unwrap_err().to_string();
            assert_eq!(error, format!("OMNES_POOL_PACKETS={value}: must be from 1 to 16777216"));
        }
    }

    #[test]
    fn packets_are_as_long_as_any_network_takes_at_least() {
        let base = [("OMNES_RANK", "0"), ("OMNES_SIZE", "1")];
        let with = |value| config(&[base[0], base[1], ("OMNES_MTU", value)]);
        assert_eq!(config(&base).unwrap().mtu_bytes, None);
        assert_eq!(with("576").unwrap().mtu_bytes, Some(576));
        assert_eq!(with("9k").unwrap().mtu_bytes, Some(9216));
        let error = with("575").unwrap_err().to_string();
        assert_eq!(error, "OMNES_MTU=575: must be from 576 to 65535");
    }

    #[test]
    fn encryption_is_switched_on() {
        let base = [("OMNES_RANK", "0"), ("OMNES_SIZE", "1")];
        let with = |value| config(&[base[0], base[1], ("OMNES_ENCRYPT", value)]).unwrap();
        assert!(
            !config(&base).unwrap().encryption && !with("off").encryption && with("on").encryption
        );
    }

    #[test]
    fn ranks_that_exchange_need_no_launcher_and_have_more_patience() {
        let config = |set: &[(&str, &str)]| {
            let variable = |name: &str| {
                set.iter().find(|(other, _)| *other == name).map(|(_, value)| (*value).to_owned())
            };
            Config::for_exchange_in(Environment(variable), 2, 3)
        };
        let plain = config(&[("OMNES_RANK", "9"), ("OMNES_SIZE", "x"), ("PMI_RANK", "1")]).unwrap();
        assert_eq!((plain.rank, plain.size, plain.rendezvous.as_str()), (2, 3, ""));
        assert_eq!((plain.join_timeout, plain.peer_timeout), (JOIN_TIMEOUT_MET, PEER_TIMEOUT_MET));
        let set = [
            ("OMNES_JOIN_TIMEOUT", "1s"),
            ("OMNES_PEER_TIMEOUT", "2s"),
            ("OMNES_RENDEZVOUS", "h"),
            ("OMNES_INTERFACE", "10.0.0.0/24"),
        ];
        let set = config(&set).unwrap();
        assert_eq!(set.join_timeout + set.peer_timeout, Duration::from_secs(3));
        assert_eq!(set.rendezvous, "h");
        assert_eq!(set.interface.unwrap().to_string(), "10.0.0.0/24");
        let error = config(&[("OMNES_INTERFACE", "10.0.0.0/x")]).unwrap_err().to_string();
        assert!(error.contains("OMNES_INTERFACE=10.0.0.0/x: must be"), "{error}");
    }

    #[test]
    fn first_host_of_a_list() {
        assert_eq!(first_host("a,b"), Some("a".to_owned()));
        assert_eq!(first_host("a[7]"), Some("a7".to_owned()));
    }
}
