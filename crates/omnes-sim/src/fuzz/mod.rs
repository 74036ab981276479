//! Entry points for the fuzzer: bytes are a list of operations. Plain tests replay the corpus.

mod broadcast;
mod channel;
mod collective;

pub use broadcast::broadcast;
pub use channel::channel;
pub use collective::collective;

use omnes_wire::Seq;

/// Operations of one input.
const OPERATIONS_MAX: usize = 400;
/// Packets that one operation may lead to.
const PACKETS_MAX: usize = 2000;
/// Bound on what a rank's machines print of themselves: a measure of their state.
const STATE_CHARACTERS_MAX: usize = 400_000;

/// Reads numbers from bytes; zeros at the end.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// The number given, mostly; else one near it, or any.
    fn near(&mut self, seq: Seq) -> Seq {
        match self.byte() {
            255 => Seq(self.word()),
            back @ 248..255 => Seq(seq.0.wrapping_sub(256 - u32::from(back))),
            ahead @ 160..248 => seq.plus(u32::from(ahead) - 160),
            _ => seq,
        }
    }

    fn word(&mut self) -> u32 {
        u32::from_be_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }

    /// A small number mostly, any number now and then.
    fn number(&mut self) -> u32 {
        match self.byte() {
            255 => self.word(),
            254 => u32::MAX - u32::from(self.byte()),
            small => u32::from(small),
        }
    }
}

fn must<T>(result: Result<T, String>) -> T {
    match result {
        Ok(value) => value,
        Err(text) => panic!("{text}"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::engine::random::Random;

    type Target = fn(&[u8]);
    const TARGETS: [(&str, Target); 3] =
        [("channel", channel), ("broadcast", broadcast), ("collective", collective)];

    #[test]
    fn corpus_is_replayed() {
        for (name, target) in TARGETS {
            let folder = format!("{}/../../fuzz/corpus/{name}", env!("CARGO_MANIFEST_DIR"));
            let Ok(entries) = std::fs::read_dir(folder) else { continue };
            let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
            files.sort();
            for file in files {
                println!("{}", file.display());
                target(&std::fs::read(file).unwrap());
            }
        }
    }

    fn throw_random_bytes(target: Target) {
        for seed in 0..1500 {
            // Shown only if the test fails.
            println!("seed {seed}");
            let mut random = Random::named(seed, "fuzz", 0);
            let mut bytes = vec![0; random.within(10, 1500) as usize];
            random.fill(&mut bytes);
            // Large numbers are rare among random bytes.
            for byte in &mut bytes {
                if random.chance(50_000) {
                    *byte = 255 - (*byte & 1);
                }
            }
            target(&bytes);
        }
    }

    #[test]
    fn random_operations_on_channels_do_no_harm() {
        throw_random_bytes(channel);
    }

    #[test]
    fn random_operations_on_broadcasts_do_no_harm() {
        throw_random_bytes(broadcast);
    }

    #[test]
    fn random_operations_on_barriers_do_no_harm() {
        throw_random_bytes(collective);
    }
}
