//! Built-in testbeds, from `testbeds/`.

use super::{Testbed, TestbedError};

const FILES: [&str; 9] = [
    include_str!("../../../../testbeds/ethernet-1g.toml"),
    include_str!("../../../../testbeds/ethernet-25g.toml"),
    include_str!("../../../../testbeds/ethernet-100g.toml"),
    include_str!("../../../../testbeds/fm-lanai4.toml"),
    include_str!("../../../../testbeds/fm-lanai4-parted.toml"),
    include_str!("../../../../testbeds/infiniband-4x.toml"),
    include_str!("../../../../testbeds/myrinet-lanai9.toml"),
    include_str!("../../../../testbeds/myrinet-lanaixp.toml"),
    include_str!("../../../../testbeds/quadrics-elan3.toml"),
];

/// All built-in testbeds, by name.
///
/// # Panics
/// If one of them is invalid, which a test would have found.
pub fn built_in() -> Vec<Testbed> {
    let parse = |text| Testbed::parse(text).expect("testbeds are tested");
    FILES.into_iter().map(parse).collect()
}

/// The testbed with this name.
///
/// # Errors
/// [`TestbedError::Unknown`] lists all names.
pub fn named(name: &str) -> Result<Testbed, TestbedError> {
    let all = built_in();
    let names: Vec<String> = all.iter().map(|testbed| format!("`{}`", testbed.name)).collect();
    all.into_iter()
        .find(|testbed| testbed.name == name)
        .ok_or_else(|| TestbedError::Unknown { name: name.to_owned(), there_are: names.join(", ") })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::engine::Span;

    #[test]
    fn built_in_testbeds_parse_and_have_unique_names() {
        let names: Vec<String> =
            FILES.iter().map(|text| Testbed::parse(text).unwrap().name).collect();
        let mut unique = names.clone();
        unique.dedup();
        assert_eq!(names, unique);
    }

    #[test]
    fn fitted_costs_of_the_first_paper_are_exact() {
        // [MS §2]: 49.0199, 12.9158 and 39.61 us for a packet of 1,536 bytes.
        let testbed = named("fm-lanai4").unwrap();
        assert_eq!(testbed.host.send.of(1536), Span::from_ps(49_019_900));
        assert_eq!(testbed.nic.transmit.of(1536), Span::from_ps(12_915_800));
        let receive = testbed.nic.receive.of(1536) + testbed.host.receive.of(1536);
        assert_eq!(receive, Span::from_ps(39_610_000));
    }

    #[test]
    fn older_lanai_equals_the_newer_one_with_slower_clocks() {
        let (old, new) = (named("myrinet-lanai9").unwrap(), named("myrinet-lanaixp").unwrap());
        assert_eq!(old.constants.len(), new.constants.len());
        let of_nic = [
            "nic.transmit",
            "nic.receive",
            "nic.step_receive",
            "nic.record",
            "nic.answer",
            "nic.settle",
            "nic.step",
            "nic.step_send",
            "nic.bell",
        ];
        for (old, new) in old.constants.iter().zip(&new.constants) {
            let slower = match old.name.as_str() {
                name if of_nic.contains(&name) => 225.0 / 133.0,
                "host.call" | "host.receive" => 2400.0 / 700.0,
                _ => 1.0,
            };
            assert_eq!(old.name, new.name);
            assert!((old.value - new.value * slower).abs() < 0.1, "{}", old.name);
        }
    }

    #[test]
    fn testbed_error_names_the_faulty_field() {
        let text = include_str!("../../../../testbeds/fm-lanai4.toml")
            .replace("source = \"[MS-R2]\"", "source = \"\"");
        assert!(matches!(Testbed::parse(&text), Err(TestbedError::NoSource { .. })));
        let text = include_str!("../../../../testbeds/fm-lanai4.toml")
            .replace("payload_bytes = { count = 1536", "payload_bytes = { count = 70000");
        let too_large = Testbed::parse(&text).unwrap_err().to_string();
        assert!(too_large.contains("`link.payload_bytes` is 70000"), "{too_large}");
        let unknown = named("fm").unwrap_err().to_string();
        assert!(unknown.contains("`fm-lanai4`"), "{unknown}");
    }

    #[test]
    fn ineffective_and_out_of_range_numbers_are_rejected() {
        let text = include_str!("../../../../testbeds/ethernet-25g.toml");
        for (from, to, told) in [
            ("fixed_ns = 142.7", "count = 3", "`host.call` is a count of 3; it must be `fixed_ns`"),
            ("fixed_ns = 142.7", "fixed_ns = -1", "`host.call` is -1; it must be 0 to 1e9 ns"),
            ("fixed_ns = 142.7", "fixed_ns = nan", "`host.call` is NaN"),
            ("fixed_ns = 142.7", "fixed_ns = -1, count = 3", "`host.call` is -1"),
            (
                "byte_ns = 0.32",
                "byte_ns = 1e15",
                "`link.wire` is 1000000000000000 ns for each byte",
            ),
            ("byte_ns = 0.32", "fixed_ns = 9", "`link.wire` is a fixed time of 9 ns; it must be"),
            ("count = 44,", "count = 0,", "`host.train_packets` is 0; it must be at least 1"),
            (
                "count = 44,",
                "count = 4294967296,",
                "`host.train_packets` is 4294967296; it must be",
            ),
            ("count = 44,", "count = 1.5,", "`host.train_packets` is 1.5; it must be a whole"),
            ("count = 44,", "fixed_ns = 44,", "`host.train_packets` is a time; it must be `count`"),
            (
                "count = 44,",
                "",
                "`host.train_packets` is not a number; it must be given as `count`",
            ),
            ("fixed_ns = 25,", "byte_ns = 25,", "`link.latency` is a time for each byte"),
        ] {
            let wrong = text.replacen(from, to, 1);
            assert_ne!(wrong, text, "{from}");
            let error = Testbed::parse(&wrong).unwrap_err().to_string();
            assert!(error.starts_with(told), "{to}: {error}");
        }
    }
}
