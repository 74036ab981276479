//! Tests of the settings that follow from variables.

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
fn three_variables_are_sufficient() {
    let config =
        config(&[("OMNES_RANK", "2"), ("OMNES_SIZE", "8"), ("OMNES_RENDEZVOUS", "10.0.0.1:4000")])
            .unwrap();
    assert_eq!((config.rank, config.size), (2, 8));
    assert_eq!(config.rendezvous, "10.0.0.1:4000");
    assert!(config.job_key.is_none());
}

#[test]
fn each_launcher_is_recognized() {
    let torchrun =
        [("RANK", "1"), ("WORLD_SIZE", "4"), ("MASTER_ADDR", "node1"), ("MASTER_PORT", "29500")];
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
fn single_rank_needs_no_rendezvous() {
    for alone in [
        [("RANK", "0"), ("WORLD_SIZE", "1")],
        [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "1")],
        [("PMI_RANK", "0"), ("PMI_SIZE", "1")],
    ] {
        assert_eq!(config(&alone).unwrap().rendezvous, "127.0.0.1:0");
    }
}

#[test]
fn guessed_ports_are_outside_the_ephemeral_range() {
    for number in [0, 12_767, 12_768, u32::MAX] {
        assert!((20_000..32_768).contains(&guessed_port(number)));
    }
}

#[test]
fn torchrun_takes_precedence_over_an_outer_launcher() {
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
fn slurm_ranks_with_pmi_variables_use_the_slurm_rendezvous() {
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
    // Ranks of a job that mpirun has started in a Slurm task.
    assert!(with("0").unwrap_err().to_string().contains("OMNES_RENDEZVOUS"));
}

#[test]
fn nearest_launcher_wins_and_a_missing_one_is_an_error() {
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
fn invalid_values_are_named_without_revealing_the_key() {
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
fn multicast_variables_are_parsed_and_invalid_ones_named() {
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
fn tune_and_network_variables_are_parsed() {
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
fn stats_variable_disables_or_relocates_live_counters() {
    let base = [("OMNES_RANK", "0"), ("OMNES_SIZE", "1")];
    let with = |value| config(&[base[0], base[1], ("OMNES_STATS", value)]);
    assert_eq!(config(&base).unwrap().stats, StatsPlace::Usual);
    assert_eq!(with("off").unwrap().stats, StatsPlace::Off);
    assert_eq!(with("/a/b").unwrap().stats, StatsPlace::In("/a/b".into()));
    let error = with("never").unwrap_err().to_string();
    assert!(error.contains("OMNES_STATS=never") && error.contains("on, off"), "{error}");
}

#[test]
fn shm_variable_disables_shared_memory() {
    let base = [("OMNES_RANK", "0"), ("OMNES_SIZE", "1")];
    let with = |value| config(&[base[0], base[1], ("OMNES_SHM", value)]);
    assert!(config(&base).unwrap().shared_memory && with("on").unwrap().shared_memory);
    assert!(!with("off").unwrap().shared_memory);
    let error = with("no").unwrap_err().to_string();
    assert!(error.contains("OMNES_SHM=no") && error.contains("on or off"), "{error}");
}

#[test]
fn pool_size_must_be_in_range() {
    let with =
        |value| config(&[("OMNES_RANK", "0"), ("OMNES_SIZE", "1"), ("OMNES_POOL_PACKETS", value)]);
    assert_eq!(with("1").unwrap().pool_packets, 1);
    assert_eq!(with("16777216").unwrap().pool_packets, 16_777_216);
    for value in ["0", "16777217", "many"] {
        let error = with(value).unwrap_err().to_string();
        assert_eq!(error, format!("OMNES_POOL_PACKETS={value}: must be from 1 to 16777216"));
    }
}

#[test]
fn mtu_variable_has_a_lower_limit() {
    let base = [("OMNES_RANK", "0"), ("OMNES_SIZE", "1")];
    let with = |value| config(&[base[0], base[1], ("OMNES_MTU", value)]);
    assert_eq!(config(&base).unwrap().mtu_bytes, None);
    assert_eq!(with("576").unwrap().mtu_bytes, Some(576));
    assert_eq!(with("9k").unwrap().mtu_bytes, Some(9216));
    let error = with("575").unwrap_err().to_string();
    assert_eq!(error, "OMNES_MTU=575: must be from 576 to 65535");
}

#[test]
fn encrypt_variable_enables_encryption() {
    let base = [("OMNES_RANK", "0"), ("OMNES_SIZE", "1")];
    let with = |value| config(&[base[0], base[1], ("OMNES_ENCRYPT", value)]).unwrap();
    assert!(!config(&base).unwrap().encryption && !with("off").encryption && with("on").encryption);
}

#[test]
fn exchange_config_needs_no_launcher_and_has_longer_timeouts() {
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
fn first_host_is_extracted_from_a_node_list() {
    assert_eq!(first_host("a,b"), Some("a".to_owned()));
    assert_eq!(first_host("a[7]"), Some("a7".to_owned()));
}
