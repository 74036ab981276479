//! Words that messages of a barrier carry: how two combine into one, how many they are, and whose
//! they are.
#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

use omnes_firmware::COMBINING_MEMBERS_MAX;
use omnes_firmware::barrier::{Barrier, Combine, Contribution, Table, Verdict, can_combine};
use omnes_topo::BarrierAlgorithm;
use omnes_wire::{CARRIED_MAX, Words};

/// Two words combined, without the firmware.
fn combined(combine: Combine, a: u64, b: u64) -> u64 {
    let (signed_a, signed_b) = (a.cast_signed(), b.cast_signed());
    match combine {
        Combine::Nothing => a,
        Combine::Sum => a.wrapping_add(b),
        Combine::Product => a.wrapping_mul(b),
        Combine::Min => signed_a.min(signed_b).cast_unsigned(),
        Combine::Max => signed_a.max(signed_b).cast_unsigned(),
        Combine::And => a & b,
        Combine::Or => a | b,
        Combine::Xor => a ^ b,
        Combine::SumF64 => (f64::from_bits(a) + f64::from_bits(b)).to_bits(),
    }
}

#[test]
fn combined_word_pairs_match_the_processor() {
    let words = [0, 1, 2, 3, 10, 12, 1 << 62, i64::MAX as u64, i64::MIN as u64, (-1i64) as u64];
    // Processors differ in their NaNs.
    let is_nan = |word: u64| f64::from_bits(word).is_nan();
    for combine in [Combine::Nothing].into_iter().chain(Combine::ALL) {
        for a in words {
            for b in words {
                if combine == Combine::SumF64 && (is_nan(a) || is_nan(b)) {
                    continue;
                }
                let made = Contribution::new(combine, &[a]).with([Words::new(&[b])]).words();
                assert_eq!(made.first(), combined(combine, a, b), "{combine:?} {a:x} {b:x}");
            }
        }
    }
    let unknown = Contribution::numbered(77, Words::new(&[5])).with([Words::new(&[6])]);
    assert_eq!(unknown.words().first(), 0);
}

/// The root of a counter, which receives from all others in step 0.
fn root(size: usize) -> (Table, Barrier) {
    let table = Table::new(BarrierAlgorithm::Counter, 0, size as u32, false).unwrap();
    let member = Barrier::after(&table, 0);
    (table, member)
}

#[test]
fn messages_with_a_different_word_count_are_rejected() {
    let all: [u64; CARRIED_MAX] = std::array::from_fn(|which| which as u64 + 1);
    for own in 1..=CARRIED_MAX {
        for other in 1..=CARRIED_MAX {
            let (table, mut member) = root(3);
            member.enter(&table, 1, Contribution::new(Combine::Sum, &all[..own]));
            let words = Words::new(&all[..other]);
            let (verdict, action) = member.arrive(&table, (1, 0), 1, words);
            let expected = if own == other { Verdict::Taken } else { Verdict::Nonsense };
            assert_eq!((verdict, action.is_done()), (expected, false), "{own} {other}");
            // A rejected message is still missing.
            assert_eq!(member.missing(&table).contains(&1), own != other);
            // Of the next barrier the number of words is not known yet.
            let (verdict, _) = member.arrive(&table, (2, 0), 2, words);
            assert_eq!(verdict, Verdict::Taken);
        }
    }
}

#[test]
fn combining_members_are_limited_by_the_available_space() {
    let most = COMBINING_MEMBERS_MAX;
    assert!(can_combine(BarrierAlgorithm::Counter, most as u32));
    assert!(!can_combine(BarrierAlgorithm::Counter, most as u32 + 1));
    let (table, mut member) = root(most);
    // A bit for each member, so that the result shows whose words it contains.
    let bit = |own: usize| [0, 1 << own, 0, u64::MAX >> own];
    for epoch in 1..=3 {
        member.enter(&table, epoch, Contribution::new(Combine::Xor, &bit(0)));
        for from in 1..most {
            let (verdict, action) =
                member.arrive(&table, (epoch, 0), from as u32, Words::new(&bit(from)));
            assert_eq!((verdict, action.is_done()), (Verdict::Taken, from + 1 == most));
        }
        let last = (0..most).fold(0, |made, own| made ^ bit(own)[3]);
        assert_eq!(member.results(&table).as_slice(), [0, u64::MAX, 0, last]);
    }
}
