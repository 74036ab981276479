//! The launcher whose environment tells this process its rank.
//!
//! Several may be set: `omnes run` inside a Slurm job, or torchrun under mpirun. The one nearest to
//! the process is used, in the order of [`Launcher::nearest_first`].

use super::Finding;
use omnes::Launcher;

/// One finding per launcher whose variables are set; one finding if there is none. `variable` reads
/// the environment.
pub fn findings(variable: impl Fn(&str) -> Option<String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut used: Option<&str> = None;
    for launcher in Launcher::nearest_first(&variable) {
        let (rank, size) = (variable(launcher.rank), variable(launcher.size));
        if rank.is_none() && size.is_none() {
            continue;
        }
        let name = format!("launcher {}", launcher.name);
        let show = |value: &Option<String>| value.clone().unwrap_or_else(|| "(unset)".to_owned());
        let value = format!("{}={} {}={}", launcher.rank, show(&rank), launcher.size, show(&size));
        let standing = standing(rank.as_deref(), size.as_deref());
        findings.push(match (used, &standing) {
            (Some(nearer), _) => {
                let advice = format!("not used: {nearer} is nearer");
                Finding { advice, ..Finding::ok(name, value) }
            }
            (None, Standing::Half) => Finding::limited(name, value, "not used: both are needed"),
            (None, Standing::Wrong) => {
                let advice = "ranks refuse to start: both must be numbers, and rank < size";
                Finding::missing(name, value, advice)
            }
            (None, Standing::Usable) => {
                Finding { advice: "used".to_owned(), ..Finding::ok(name, value) }
            }
        });
        if !matches!(standing, Standing::Half) {
            used.get_or_insert(launcher.name);
        }
    }
    if findings.is_empty() {
        let advice = "start with `omnes run -n 8 -- CMD`, or mpirun, srun, torchrun";
        findings.push(Finding { advice: advice.to_owned(), ..Finding::ok("launcher", "none") });
    }
    findings
}

/// How ranks interpret a launcher's variables.
enum Standing {
    /// They check the next launcher.
    Half,
    /// They refuse to start.
    Wrong,
    Usable,
}

fn standing(rank: Option<&str>, size: Option<&str>) -> Standing {
    let number = |text: Option<&str>| {
        let text = text.filter(|text| !text.is_empty());
        text.map(str::parse::<u32>).transpose()
    };
    match (number(rank), number(size)) {
        (Ok(Some(rank)), Ok(Some(size))) if rank < size => Standing::Usable,
        (Ok(None), Ok(_)) | (Ok(_), Ok(None)) => Standing::Half,
        _ => Standing::Wrong,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advice(set: &[(&str, &str)]) -> Vec<(String, String)> {
        let find = |name: &str| {
            set.iter().find(|(other, _)| *other == name).map(|(_, value)| (*value).to_owned())
        };
        findings(find).into_iter().map(|finding| (finding.name, finding.advice)).collect()
    }

    #[test]
    fn closest_launcher_is_used() {
        let set = [
            ("SLURM_PROCID", "0"),
            ("SLURM_NTASKS", "1"),
            ("OMNES_RANK", "1"),
            ("OMNES_SIZE", "2"),
        ];
        let expected =
            [("launcher omnes run", "used"), ("launcher Slurm", "not used: omnes run is nearer")];
        let found = advice(&set);
        assert_eq!(found.iter().map(|(n, a)| (&**n, &**a)).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn incomplete_launcher_environment_is_not_used() {
        for set in [&[("RANK", "1")][..], &[("RANK", "1"), ("WORLD_SIZE", "")]] {
            assert!(advice(set)[0].1.starts_with("not used"), "{set:?}");
        }
    }

    #[test]
    fn invalid_rank_hides_more_distant_launchers() {
        let slurm = [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "1")];
        for own in [("5", "2"), ("2", "2"), ("x", "2"), ("x", ""), ("0", "-1")] {
            let set = [&[("OMNES_RANK", own.0), ("OMNES_SIZE", own.1)], &slurm[..]].concat();
            let found = advice(&set);
            assert!(found[0].1.starts_with("ranks refuse to start"), "{own:?}: {found:?}");
            assert_eq!(found[1].1, "not used: omnes run is nearer", "{own:?}");
        }
    }
}
