//! The firmware's sum of two numbers equals the processor's addition, bit for bit.
//!
//! `OMNES_SUM_CASES` is the number of cases of each property; 20,000 by default.
#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

use omnes_firmware::sum_f64;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

const NAN: u64 = 0x7ff8_0000_0000_0000;
const SIGN: u64 = 1 << 63;
const FRACTION: u64 = (1 << 52) - 1;
/// The highest exponent, as a number stores it.
const EXPONENT_MAX: u64 = 0x7fe;

fn number(is_negative: bool, exponent: u64, fraction: u64) -> f64 {
    assert!(exponent <= EXPONENT_MAX + 1 && fraction <= FRACTION);
    f64::from_bits(u64::from(is_negative) << 63 | exponent << 52 | fraction)
}

fn bits_by_processor(a: f64, b: f64) -> u64 {
    let sum = a + b;
    if sum.is_nan() { NAN } else { sum.to_bits() }
}

fn is_the_processors(a: f64, b: f64) {
    let (bits, turned) = (sum_f64(a, b).to_bits(), sum_f64(b, a).to_bits());
    let expected = bits_by_processor(a, b);
    let terms = (a.to_bits(), b.to_bits());
    assert!(bits == expected, "{terms:x?}: {bits:x}, not {expected:x}");
    assert!(turned == expected, "{terms:x?} turned: {turned:x}, not {expected:x}");
}

/// Fractions of any bits, and fractions that decide how a sum is rounded.
fn fraction() -> impl Strategy<Value = u64> {
    prop_oneof![
        3 => 0..=FRACTION,
        1 => Just(0),
        1 => Just(FRACTION),
        1 => (0..52).prop_map(|at| 1u64 << at),
        1 => (0..52).prop_map(|at| FRACTION >> at),
        1 => (0..52).prop_map(|at| FRACTION >> at << at),
        1 => (0..52, 0..=FRACTION).prop_map(|(at, any)| any >> at << at),
    ]
}

/// Exponents of numbers, with the lowest and the highest more often.
fn exponent() -> impl Strategy<Value = u64> {
    prop_oneof![2 => 0..=EXPONENT_MAX, 1 => 0..=80u64, 1 => EXPONENT_MAX - 80..=EXPONENT_MAX]
}

fn cases() -> u32 {
    std::env::var("OMNES_SUM_CASES").map_or(20_000, |cases| cases.parse().unwrap())
}

/// Zeros, subnormals, numbers near one and near the limits, infinities and NaNs.
fn special() -> Vec<f64> {
    let tiny = f64::from_bits(1);
    let numbers = [
        0.0,
        tiny,
        f64::from_bits(2),
        f64::from_bits(3),
        f64::from_bits(1 << 51),
        f64::from_bits(FRACTION - 1),
        f64::from_bits(FRACTION),
        f64::MIN_POSITIVE,
        f64::MIN_POSITIVE.next_up(),
        2.0 * f64::MIN_POSITIVE,
        (2.0 * f64::MIN_POSITIVE).next_down(),
        f64::EPSILON / 4.0,
        f64::EPSILON / 2.0,
        (f64::EPSILON / 2.0).next_up(),
        f64::EPSILON,
        1.5 * f64::EPSILON,
        0.1,
        0.5,
        1.0_f64.next_down(),
        1.0,
        1.0_f64.next_up(),
        1.5,
        2.0,
        3.0,
        (1u64 << 52) as f64,
        (1u64 << 53) as f64,
        ((1u64 << 53) as f64).next_up(),
        // Half of the highest number's last place, where overflow begins, and its neighbours.
        number(false, EXPONENT_MAX - 53, 0).next_down(),
        number(false, EXPONENT_MAX - 53, 0),
        number(false, EXPONENT_MAX - 53, 0).next_up(),
        number(false, EXPONENT_MAX - 52, 0),
        f64::MAX / 2.0,
        f64::MAX.next_down(),
        f64::MAX,
        f64::INFINITY,
        f64::NAN,
        f64::from_bits(0x7ff0_0000_0000_0001),
        f64::from_bits(0x7fff_ffff_ffff_ffff),
    ];
    numbers.iter().flat_map(|x| [*x, f64::from_bits(x.to_bits() ^ SIGN)]).collect()
}

#[test]
fn sums_of_special_values_match_the_processor() {
    let special = special();
    for a in &special {
        for b in &special {
            is_the_processors(*a, *b);
        }
    }
}

#[test]
fn zeros_infinities_and_nans_follow_ieee_754() {
    let bits = |a: f64, b: f64| sum_f64(a, b).to_bits();
    assert_eq!(bits(-0.0, -0.0), SIGN);
    assert_eq!(bits(0.0, -0.0), 0);
    assert_eq!(bits(-2.5, 2.5), 0);
    assert_eq!(bits(f64::MAX, f64::MAX), f64::INFINITY.to_bits());
    assert_eq!(bits(f64::NEG_INFINITY, f64::MAX), f64::NEG_INFINITY.to_bits());
    assert_eq!(bits(f64::INFINITY, f64::NEG_INFINITY), NAN);
    assert_eq!(bits(f64::from_bits(0xfff0_0000_0000_0001), 1.0), NAN);
    assert_eq!(bits(f64::from_bits(u64::MAX), f64::INFINITY), NAN);
}

#[test]
fn sums_with_exponents_up_to_seventy_apart_match_the_processor() {
    let fractions = [0, 1, 2, 3, 1 << 51, (1 << 51) + 1, (1 << 51) - 1, FRACTION - 1, FRACTION];
    for exponent in [0, 1, 2, 53, 64, 70, 1023, EXPONENT_MAX - 1, EXPONENT_MAX] {
        for apart in 0..=70.min(exponent) {
            for large in fractions {
                for small in fractions {
                    let a = number(false, exponent, large);
                    let b = number(false, exponent - apart, small);
                    is_the_processors(a, b);
                    is_the_processors(a, -b);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        rng_seed: RngSeed::Fixed(0x6636_3473),
        failure_persistence: None,
        ..ProptestConfig::with_cases(cases())
    })]

    #[test]
    fn sums_of_arbitrary_bits_match_the_processor(a: u64, b: u64) {
        is_the_processors(f64::from_bits(a), f64::from_bits(b));
    }

    #[test]
    fn sums_with_near_exponents_match_the_processor(
        exponent in exponent(),
        apart in 0..=70u64,
        fractions in (fraction(), fraction()),
        signs: (bool, bool),
    ) {
        let a = number(signs.0, exponent, fractions.0);
        let b = number(signs.1, exponent.saturating_sub(apart), fractions.1);
        is_the_processors(a, b);
    }

    #[test]
    fn sums_of_subnormals_match_the_processor(
        fractions in (fraction(), fraction()),
        exponents in (0..=2u64, 0..=2u64),
        signs: (bool, bool),
    ) {
        let a = number(signs.0, exponents.0, fractions.0);
        is_the_processors(a, number(signs.1, exponents.1, fractions.1));
    }

    #[test]
    fn sums_with_cancellation_match_the_processor(
        exponent in exponent(),
        fraction in fraction(),
        apart in -4..=4i64,
        is_negative: bool,
    ) {
        let a = number(is_negative, exponent, fraction);
        is_the_processors(a, f64::from_bits((a.to_bits() ^ SIGN).wrapping_add_signed(apart)));
        is_the_processors(a, -a);
    }

    /// Half a last place, with its neighbours: the even one of two numbers, or the nearer.
    #[test]
    fn sums_rounded_at_ties_match_the_processor(
        exponent in 54..=EXPONENT_MAX,
        fraction in fraction(),
        apart in -1..=1i64,
        signs: (bool, bool),
    ) {
        let half = number(signs.1, exponent - 53, 0).to_bits().wrapping_add_signed(apart);
        is_the_processors(number(signs.0, exponent, fraction), f64::from_bits(half));
    }

    #[test]
    fn overflowing_sums_match_the_processor(
        exponents in (EXPONENT_MAX - 54..=EXPONENT_MAX + 1, EXPONENT_MAX - 1..=EXPONENT_MAX + 1),
        fractions in (fraction(), fraction()),
        signs: (bool, bool),
    ) {
        let a = number(signs.0, exponents.0, fractions.0);
        is_the_processors(a, number(signs.1, exponents.1, fractions.1));
    }
}
