//! Whose environment tells this process its rank.
//!
//! Several may be set at once: `omnes run` inside a Slurm job, or torchrun under mpirun. The
//! nearest to the process is used, as [`Launcher::nearest_first`] orders them.

use super::Finding;
use omnes::Launcher;

/// One finding per launcher whose variables are set; one if there is none. `variable` reads the
/// environment.
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
        findings.push(if !is_usable(rank.as_deref(), size.as_deref()) {
            Finding::limited(name, value, "not used: both are needed, and rank < size")
        } else if let Some(used) = used {
            Finding { advice: format!("not used: {used} is nearer"), ..Finding::ok(name, value) }
        } else {
            used = Some(launcher.name);
            Finding { advice: "used".to_owned(), ..Finding::ok(name, value) }
        });
    }
    if findings.is_empty() {
        let advice = "start with `omnes run -n 8 -- CMD`, or mpirun, srun, torchrun";
        findings.push(Finding { advice: advice.to_owned(), ..Finding::ok("launcher", "none") });
    }
    findings
}

fn is_usable(rank: Option<&str>, size: Option<&str>) -> bool {
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<u32>().ok());
    matches!((number(rank), number(size)), (Some(rank), Some(size)) if rank < size)
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
    fn the_nearest_launcher_is_used() {
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
    fn half_an_environment_is_not_used() {
        for set in [&[("RANK", "1")][..], &[("RANK", "2"), ("WORLD_SIZE", "2")]] {
            assert!(advice(set)[0].1.starts_with("not used"), "{set:?}");
        }
    }
}
