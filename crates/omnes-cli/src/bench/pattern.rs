//! The transferred data, and their check.
//!
//! Every byte depends on its position, on the round and on the seed, so a lost, duplicate, stale or
//! misplaced piece is detected. Of large messages every 61st byte is checked: enough to detect a
//! wrong packet, and fast compared with the transfer itself.

/// Messages above this size are checked in steps.
const CHECKED_WHOLE_BYTES: usize = 64 << 10;
/// A prime, so that the checked bytes move through the packets.
const CHECK_STEP_BYTES: usize = 61;

/// Data of one round under one seed.
#[derive(Clone, Copy)]
pub struct Pattern {
    /// Seed of the whole run.
    pub seed: u64,
    /// Differs from the previous round, so that stale data do not pass.
    pub round: u64,
}

impl Pattern {
    /// Data of one of several concurrent messages.
    pub fn of(self, number: u32) -> Self {
        Self { seed: self.seed.wrapping_add(u64::from(number)), ..self }
    }

    fn byte(self, at: usize) -> u8 {
        let place = (at as u64 / 8 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = place ^ self.seed.wrapping_add(self.round.wrapping_mul(0xd1b5_4a32_d192_ed03));
        (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9).to_le_bytes()[at % 8]
    }

    /// Fills `buffer` with the data.
    pub fn fill(self, buffer: &mut [u8]) {
        buffer.iter_mut().enumerate().for_each(|(at, byte)| *byte = self.byte(at));
    }

    /// Fills `buffer` with data that are wrong at every byte.
    pub fn fill_wrong(self, buffer: &mut [u8]) {
        buffer.iter_mut().enumerate().for_each(|(at, byte)| *byte = !self.byte(at));
    }

    /// Number of checked bytes that are wrong.
    pub fn count_wrong(self, buffer: &[u8]) -> u64 {
        let step = if buffer.len() > CHECKED_WHOLE_BYTES { CHECK_STEP_BYTES } else { 1 };
        let looked_at = buffer.iter().enumerate().step_by(step);
        looked_at.filter(|(at, byte)| **byte != self.byte(*at)).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Pattern = Pattern { seed: 1, round: 1 };

    #[test]
    fn filled_pattern_has_no_errors_and_its_inverse_only_errors() {
        let mut buffer = vec![0; 5000];
        FIRST.fill(&mut buffer);
        assert_eq!(FIRST.count_wrong(&buffer), 0);
        FIRST.fill_wrong(&mut buffer);
        assert_eq!(FIRST.count_wrong(&buffer), 5000);
    }

    #[test]
    fn data_of_another_round_seed_or_offset_are_detected() {
        let mut buffer = vec![0; 4096];
        FIRST.fill(&mut buffer);
        assert!(Pattern { round: 2, ..FIRST }.count_wrong(&buffer) > 3500);
        assert!(Pattern { seed: 2, ..FIRST }.count_wrong(&buffer) > 3500);
        buffer.rotate_left(1448);
        assert!(FIRST.count_wrong(&buffer) > 3500);
    }

    #[test]
    fn one_lost_packet_of_a_large_message_is_detected() {
        let mut buffer = vec![0; 1 << 20];
        FIRST.fill(&mut buffer);
        buffer[700_000..701_400].fill(0);
        assert!(FIRST.count_wrong(&buffer) > 10);
    }
}
