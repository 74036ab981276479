//! Omnes variables that are set here: their meaning, and values that ranks would reject.
//!
//! Values are checked by the parser that ranks use. Not checked: values that depend on the job,
//! such as an algorithm's number of co-roots or an interface that this machine may not have.

use super::{Finding, Verdict};
use omnes::Config;
use std::collections::BTreeSet;

const MPI_PARTS: &[&str] = &[
    "on",
    "bcast",
    "barrier",
    "allreduce",
    "reduce",
    "allgather",
    "gather",
    "scatter",
    "alltoall",
    "reduce_scatter",
    "scan",
    "off",
];
/// Given to each rank by `omnes run`, for programs; Omnes itself does not read it.
const LOCAL_RANK: (&str, &str) =
    ("OMNES_LOCAL_RANK", "this process's index among the ranks that share its machine's cores");

/// One finding for each Omnes variable among `names`.
pub fn findings(
    variable: impl Fn(&str) -> Option<String>,
    names: impl Iterator<Item = String>,
) -> Vec<Finding> {
    let names: BTreeSet<String> = names.filter(|name| name.starts_with("OMNES_")).collect();
    let found = names.iter().filter_map(|name| Some(finding(name, variable(name)?)));
    // An empty variable counts as unset, unless it is rejected.
    found.filter(|it| !it.value.is_empty() || it.verdict != Verdict::Ok).collect()
}

fn finding(name: &str, value: String) -> Finding {
    // The key is a secret.
    let shown = if name == "OMNES_JOB_KEY" { "(secret)".to_owned() } else { value.clone() };
    let allowed: &[&str] = match name {
        "OMNES_MPI" => MPI_PARTS,
        "OMNES_MPI_ONE_NODE" | "OMNES_MPI_REPORT" => &["on", "off"],
        _ => &[],
    };
    if !allowed.is_empty() && !value.is_empty() && !allowed.contains(&&*value) {
        let advice = format!("not understood and ignored; must be one of {}", allowed.join(", "));
        return Finding::limited(name, shown, &advice);
    }
    let mut known = omnes_mpi::VARIABLES.iter().chain(omnes::VARIABLES).chain([&LOCAL_RANK]);
    let Some((_, meaning)) = known.find(|(other, _)| *other == name) else {
        return Finding::limited(
            name,
            shown,
            "no rank or command of Omnes reads a variable of this name",
        );
    };
    match Config::check_variable(name, &value) {
        Err(omnes::Error::InvalidVariable { reason, .. }) => {
            let advice = format!("ranks refuse it (an MPI job runs without Omnes): {reason}");
            Finding::missing(name, shown, &advice)
        }
        _ => Finding { advice: (*meaning).to_owned(), ..Finding::ok(name, shown) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_settings_are_reported_as_limited_and_the_key_is_hidden() {
        let verdict = |name, value: &str| finding(name, value.to_owned()).verdict;
        assert_eq!(verdict("OMNES_MPI", "bcast"), Verdict::Ok);
        assert_eq!(verdict("OMNES_MPI", "bcasts"), Verdict::Limited);
        assert_eq!(verdict("OMNES_MPI_REPORT", "1"), Verdict::Limited);
        assert_eq!(verdict("OMNES_NIC", "user"), Verdict::Ok);
        assert_eq!(verdict("OMNES_LOCAL_RANK", "3"), Verdict::Ok);
        assert_eq!(verdict("OMNES_MPI_RAPORT", "on"), Verdict::Limited);
        assert!(!finding("OMNES_JOB_KEY", "0badc0de".to_owned()).value.contains("0badc0de"));
        let set = ["OMNES_NIC", "HOME"].map(str::to_owned);
        assert_eq!(findings(|_| Some("user".to_owned()), set.into_iter()).len(), 1);
    }

    #[test]
    fn invalid_values_are_reported_with_the_expected_form() {
        for (name, value, reason) in [
            ("OMNES_SPIN", "4", "needs a unit of time"),
            ("OMNES_PEER_TIMEOUT", "1ms", "must be at least 10ms"),
            ("OMNES_BCAST", "foo", "multicast"),
            ("OMNES_RANK", "x", "must be a whole number"),
            ("OMNES_JOB_KEY", "", "32"),
        ] {
            let finding = finding(name, value.to_owned());
            assert_eq!(finding.verdict, Verdict::Missing, "{name}={value}");
            assert!(finding.advice.contains(reason), "{}", finding.advice);
        }
    }
}
