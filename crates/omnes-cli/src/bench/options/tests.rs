//! Options that are parsed, printed and rejected.

#![allow(clippy::unwrap_used)]
use super::*;
use clap::Parser;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    measure: Measure,
}

fn parse(line: &str) -> Measure {
    let words = std::iter::once("bench").chain(line.split_whitespace());
    Cli::try_parse_from(words).map_err(|error| error.to_string()).unwrap().measure
}

#[test]
fn printed_command_line_reproduces_the_measurement() {
    let line = "bcast,barrier --sizes 8,64k,3m --algorithms chain,dissemination --no-check";
    let first = parse(line).command_line(7);
    let again = parse(first.strip_prefix("omnes bench").unwrap());
    assert_eq!(again.seed, Some(7));
    assert_eq!(again.command_line(7), first);
}

#[test]
fn durations_are_printed_in_their_shortest_form() {
    let printed = parse("skew --skew 0,5000ms --budget 100s").command_line(1);
    assert!(printed.contains("--budget 100s") && printed.contains("--skew 0s,5s"), "{printed}");
}

#[test]
fn algorithms_apply_only_to_operations_that_support_them() {
    let measure = parse("bcast,barrier,latency --algorithms chain,flat,dissemination");
    let names = |op| -> Vec<String> {
        measure.algorithms_for(op).iter().map(Algorithm::to_string).collect()
    };
    assert_eq!(names(Op::Bcast), ["chain", "flat"]);
    assert_eq!(names(Op::Barrier), ["dissemination"]);
    assert_eq!(names(Op::Latency), ["default"]);
    assert!(measure.check(2).is_ok());
    let error = parse("barrier --algorithms chain").check(2).unwrap_err().to_string();
    assert_eq!(error, "--algorithms chain: none of the operations can use it");
}

#[test]
fn words_algorithm_takes_one_to_four_elements() {
    let words = Algorithm::Reduce(omnes::ReduceAlgorithm::Words);
    let takes = [0, 3, 5, 12, 20, 32, 40].map(|bytes| words.takes(bytes));
    assert_eq!(takes, [false, true, false, true, false, true, false]);
    assert!(Algorithm::Default.takes(40));
    assert!(parse("allreduce --algorithms words --sizes 8,40").check(2).is_ok());
    let error = parse("allreduce --algorithms words --sizes 40").check(2).unwrap_err();
    assert!(error.to_string().contains("1 to 4 numbers"), "{error}");
}

#[test]
fn schemes_apply_to_all_broadcast_operations() {
    let line = "throughput,skew,bcast --scheme original,co-root=4+skewed=8 --skew 0,1500ns,2ms";
    let measure = parse(line);
    for op in [Op::Throughput, Op::Skew, Op::Bcast] {
        let names: Vec<_> = measure.algorithms_for(op).iter().map(Algorithm::to_string).collect();
        assert_eq!(names, ["binomial:store", "co-root=4+skewed=8"]);
    }
    assert_eq!(measure.skews_for(Op::Bcast), [Duration::ZERO]);
    let again = measure.command_line(1);
    assert!(again.contains("--skew 0s,1500ns,2ms"), "{again}");
    assert_eq!(parse(again.strip_prefix("omnes bench").unwrap()).skew, measure.skew);
    assert!(!parse("bcast").command_line(1).contains("--skew"));
}

#[test]
fn multisend_forms_and_destinations_are_parsed_checked_and_printed() {
    let line = "multisend,bcast --multisend flat:nic,postal=2.5,kary=3:host,off,auto \
                --destinations 1,3,7";
    let measure = parse(line);
    assert!(measure.check(8).is_ok());
    assert_eq!(measure.destinations_for(Op::Multisend, 8), [1, 3, 7]);
    assert_eq!(measure.destinations_for(Op::Bcast, 8), [7]);
    assert_eq!(parse("multisend").destinations_for(Op::Multisend, 8), [7]);
    let printed = measure.command_line(1);
    let again = parse(printed.strip_prefix("omnes bench").unwrap());
    assert_eq!((&again.multisend, &again.destinations), (&measure.multisend, &vec![1, 3, 7]));
    assert!(!parse("bcast").command_line(1).contains("--multisend"));
    let refused = |line, ranks| parse(line).check(ranks).unwrap_err().to_string();
    assert!(refused(line, 7).starts_with("--destinations 7: a job of 7 ranks has at most 6"));
    assert!(refused("multisend", 1).contains("needs a destination"));
    assert!(refused("bcast --destinations 1", 4).contains("is for multisend"));
    assert!(refused("latency,barrier --multisend flat", 4).contains("none of the operations"));
    // Multi-sends have no choice of broadcast algorithms.
    let error = refused("multisend --algorithms chain", 4);
    assert_eq!(error, "--algorithms chain: none of the operations can use it");
}

#[test]
fn options_that_no_operation_uses_are_rejected() {
    let refused = |line| parse(line).check(2).unwrap_err().to_string();
    assert_eq!(refused("bcast,latency --bidirectional"), "--bidirectional is for bandwidth");
    assert_eq!(refused("bcast --skew 5ms"), "--skew is for skew");
    assert!(parse("bcast,bandwidth,skew --bidirectional --skew 5ms").check(2).is_ok());
    let usual = parse("skew");
    assert!(usual.check(2).is_ok());
    assert!(usual.command_line(1).contains(" --skew 0s,200us,400us,1ms "));
    assert_eq!(usual.skews_for(Op::Skew).len(), 4);
}

#[test]
fn latency_needs_two_ranks() {
    assert!(parse("latency").check(2).is_ok());
    let error = parse("bcast,latency").check(1).unwrap_err().to_string();
    assert!(error.contains("omnes run -n 2 -- omnes bench latency"), "{error}");
}

#[test]
fn min_iters_above_max_iters_is_rejected() {
    let error = parse("bcast --min-iters 9 --max-iters 8").check(2).unwrap_err().to_string();
    assert_eq!(error, "--min-iters 9 is above --max-iters 8");
}

#[test]
fn min_iters_out_of_range_is_rejected() {
    let refused = |line: &str| Cli::try_parse_from(line.split_whitespace()).err();
    assert!(refused("bench bcast --min-iters 1000000 --max-iters 1000000").is_none());
    for count in ["0", "1000001", "2000000000000000000"] {
        let error = refused(&format!("bench bcast --min-iters {count}")).unwrap().to_string();
        assert!(error.contains("is not in 1..=1000000"), "{error}");
    }
}

#[test]
fn tags_keep_numbers_and_reject_built_in_field_names() {
    assert_eq!(parse_tag("loss=0.1"), Ok(("loss".to_owned(), serde_json::json!(0.1))));
    assert_eq!(parse_tag("net=lab=2"), Ok(("net".to_owned(), serde_json::json!("lab=2"))));
    assert!(parse_tag("median_us=3").unwrap_err().contains("median_us"));
    assert!(parse_tag("=3").is_err() && parse_tag("loss").is_err());
}
