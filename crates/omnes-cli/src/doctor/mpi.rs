//! Effect of `omnes mpirun` on this machine: launchers, preload libraries, settings, interfaces.
//!
//! Launchers are run to print their version. Each library is loaded once, into a shell that does
//! nothing.

use super::Finding;
use crate::run::quote;
use omnes::Interface;
use omnes_mpi::{Error, Launcher, Library, Mpi, NAMES, Setup, find_program};
use std::collections::BTreeSet;
use std::ffi::OsStr;

/// Findings about MPI programs; `variable` reads the environment.
pub fn findings(variable: impl Fn(&str) -> Option<String>) -> Vec<Finding> {
    let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
    let usual = Launcher::find(None);
    let mut findings = launchers(usual.as_ref().ok());
    findings.extend(Mpi::ALL.map(|mpi| library(mpi, &Library::find(mpi))));
    findings.push(passed(usual));
    findings.push(taken(&variable));
    findings.push(interfaces(&variable));
    findings
}

/// Each launcher in PATH under its first name, and whether it is the default one.
fn launchers(usual: Option<&Launcher>) -> Vec<Finding> {
    let mut seen = BTreeSet::new();
    let mut findings = Vec::new();
    for name in NAMES.map(OsStr::new) {
        let Some(path) = find_program(name) else { continue };
        if seen.insert(path.canonicalize().unwrap_or(path)) {
            findings.push(launcher(name, Launcher::find(Some(name)), usual));
        }
    }
    if findings.is_empty() {
        findings.push(Finding::missing("launcher", "none in PATH", &Error::NoLauncher.to_string()));
    }
    findings
}

fn launcher(name: &OsStr, found: Result<Launcher, Error>, usual: Option<&Launcher>) -> Finding {
    let name = name.display();
    let title = format!("launcher {name}");
    match found {
        Ok(found) => {
            let value = format!("{} {}, {}", found.mpi, found.version, found.path.display());
            let advice = if usual == Some(&found) {
                "used by `omnes mpirun`".to_owned()
            } else {
                format!("used by `omnes mpirun --launcher {name}`")
            };
            Finding { advice, ..Finding::ok(title, value) }
        }
        Err(error) => Finding::limited(title, "cannot be used", &error.to_string()),
    }
}

fn library(mpi: Mpi, found: &Result<Library, Error>) -> Finding {
    let title = format!("library for {mpi}");
    match found {
        Err(error) => Finding::missing(title, "none", &error.to_string()),
        Ok(library) => match library.check() {
            Ok(()) => Finding::ok(title, format!("{}, loads", library.path.display())),
            Err(complaint) => {
                let advice = format!("does not load: {complaint}");
                Finding::limited(title, library.path.display(), &advice)
            }
        },
    }
}

/// Options that the launcher would be given.
fn passed(usual: Result<Launcher, Error>) -> Finding {
    let title = "`omnes mpirun` adds";
    let found = usual.and_then(|launcher| Ok((Library::find(launcher.mpi)?, launcher)));
    match found {
        Ok((library, launcher)) => {
            let words = Setup::from_env(&library).words(launcher.mpi);
            let quoted: Vec<Vec<u8>> = words.iter().map(|word| quote(word)).collect();
            Finding::ok(title, String::from_utf8_lossy(&quoted.join(&b' ')))
        }
        Err(error) => Finding::missing(title, "it would not start", &error.to_string()),
    }
}

/// Calls that ranks with these settings take over from their MPI.
fn taken(variable: &impl Fn(&str) -> Option<String>) -> Finding {
    let title = "handled by Omnes";
    let calls = match variable("OMNES_MPI").as_deref() {
        Some("off") => {
            return Finding::limited(title, "nothing (OMNES_MPI=off)", "unset OMNES_MPI");
        }
        Some("bcast") => "broadcasts",
        Some("barrier") => "barriers",
        Some("allreduce") => "short allreduces",
        Some("reduce") => "short reduces",
        Some("allgather") => "short allgathers",
        Some("gather") => "short gathers",
        Some("scatter") => "short scatters",
        Some("alltoall") => "short alltoalls",
        Some("reduce_scatter") => "short reduce-scatters",
        Some("scan") => "short scans",
        _ => "broadcasts, barriers, other short collectives",
    };
    let nodes = match variable("OMNES_MPI_ONE_NODE").as_deref() {
        Some("on") => "2 ranks or more",
        _ => "2 nodes or more",
    };
    Finding::ok(title, format!("{calls}, on communicators of {nodes}"))
}

/// Addresses at which ranks of several nodes can reach each other.
fn interfaces(variable: &impl Fn(&str) -> Option<String>) -> Finding {
    let title = "interfaces for ranks";
    let limit = variable("OMNES_INTERFACE");
    let limit = match limit.as_deref().map(str::parse::<Interface>).transpose() {
        Ok(limit) => limit,
        Err(why) => {
            let value = limit.unwrap_or_default();
            return Finding::missing(title, format!("OMNES_INTERFACE={value}"), why);
        }
    };
    let all = match if_addrs::get_if_addrs() {
        Ok(all) => all,
        Err(error) => return Finding::missing(title, error, "see: ip address"),
    };
    let usable = all.iter().filter(|it| it.is_oper_up() && !it.is_loopback());
    let names: Vec<String> = usable
        .filter(|it| limit.as_ref().is_none_or(|limit| limit.admits(&it.name, it.ip())))
        .map(|it| format!("{} {}", it.name, it.ip()))
        .collect();
    if names.is_empty() {
        let advice = match limit {
            Some(limit) => format!("none fits OMNES_INTERFACE={limit}; see: ip address"),
            None => "ranks on other nodes cannot be reached; see: ip address".to_owned(),
        };
        return Finding::limited(title, "none", &advice);
    }
    let advice = "the first one in a network that all nodes share is used; OMNES_INTERFACE limits";
    Finding { advice: advice.to_owned(), ..Finding::ok(title, names.join(", ")) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::doctor::Verdict;
    use omnes_mpi::Version;

    fn read<'a>(set: &'a [(&str, &str)]) -> impl Fn(&str) -> Option<String> + 'a {
        |name| set.iter().find(|(other, _)| *other == name).map(|(_, value)| (*value).to_owned())
    }

    #[test]
    fn intercepted_collectives_follow_from_two_settings() {
        let value = |set: &[(&str, &str)]| taken(&read(set)).value;
        let all = "broadcasts, barriers, other short collectives";
        assert_eq!(value(&[]), format!("{all}, on communicators of 2 nodes or more"));
        assert_eq!(
            value(&[("OMNES_MPI", "bcast")]),
            "broadcasts, on communicators of 2 nodes or more"
        );
        let one_node = [("OMNES_MPI", "barrier"), ("OMNES_MPI_ONE_NODE", "on")];
        assert_eq!(value(&one_node), "barriers, on communicators of 2 ranks or more");
        assert_eq!(
            value(&[("OMNES_MPI", "reduce_scatter")]),
            "short reduce-scatters, on communicators of 2 nodes or more"
        );
        assert_eq!(taken(&read(&[("OMNES_MPI", "off")])).verdict, Verdict::Limited);
    }

    #[test]
    fn launcher_finding_shows_its_version_and_use() {
        let (name, path) = ("mpirun".into(), "/bin/mpirun".into());
        let version = Version { major: 4, minor: 1, patch: 4 };
        let found = Launcher { name, path, mpi: Mpi::OpenMpi, version };
        let usual = launcher("mpirun".as_ref(), Ok(found.clone()), Some(&found));
        assert_eq!(usual.value, "Open MPI 4.1.4, /bin/mpirun");
        assert_eq!(usual.advice, "used by `omnes mpirun`");
        let other = launcher("mpirun.mpich".as_ref(), Ok(found), None);
        assert_eq!(other.advice, "used by `omnes mpirun --launcher mpirun.mpich`");
        let old = Error::LauncherMissing("mpiexec".into());
        assert_eq!(launcher("mpiexec".as_ref(), Err(old), None).verdict, Verdict::Limited);
    }

    #[test]
    fn invalid_interface_setting_is_named() {
        let finding = interfaces(&read(&[("OMNES_INTERFACE", "10.0.0.0/33")]));
        assert_eq!(
            (finding.verdict, &*finding.value),
            (Verdict::Missing, "OMNES_INTERFACE=10.0.0.0/33")
        );
    }
}
