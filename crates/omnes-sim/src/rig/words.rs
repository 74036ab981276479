//! The words that ranks contribute to barriers, and their combined result: predictable, so that any
//! rank's result can be checked.

use omnes_firmware::barrier::{Combine, Contribution, can_combine};
use omnes_proto::collective::BarrierGroupConfig;
use omnes_wire::{CARRIED_MAX, Rank, Words};

/// Contribution of `rank` to barrier `epoch` of a group: one to four words, by each way of
/// combining in turn, and sometimes nothing; always nothing if the group's barriers cannot combine
/// words.
pub(crate) fn brings(group: &BarrierGroupConfig, rank: Rank, epoch: u32) -> Contribution {
    let nodes = group.nodes.count();
    if nodes > 1 && !can_combine(group.algorithm, nodes) {
        return Contribution::default();
    }
    let Some(combine) = Combine::ALL.get(epoch as usize % (Combine::ALL.len() + 1)).copied() else {
        return Contribution::default();
    };
    let words: [u64; CARRIED_MAX] = std::array::from_fn(|which| {
        let word = (u64::from(rank.0) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let word = word.rotate_left(epoch.wrapping_add(17 * which as u32));
        // Prevents rounding of sums, whatever the order.
        if combine == Combine::SumF64 { f64::from(word as i32).to_bits() } else { word }
    });
    let count = 1 + epoch as usize / (Combine::ALL.len() + 1) % CARRIED_MAX;
    Contribution::new(combine, &words[..count])
}

/// Combined words of all members in barrier `epoch`.
pub(crate) fn makes(group: &BarrierGroupConfig, epoch: u32) -> Words {
    let mut ranks = group.nodes.ranks();
    let first = ranks.next().map(|rank| brings(group, rank, epoch)).unwrap_or_default();
    first.with(ranks.map(|rank| brings(group, rank, epoch).words())).words()
}
