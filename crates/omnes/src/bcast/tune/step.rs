//! The steps that rank 0 announces to the others while it measures.

use super::cost::{Candidate, Cost, Figures};

/// Next step, for all ranks together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// A broadcast, then a report.
    Broadcast {
        /// Algorithm.
        candidate: Candidate,
        /// Length of the message.
        bytes: u64,
    },
    /// The end of the measurement: these figures are used from now on, if there are any.
    Done(Option<Figures>),
}

/// Kind, algorithm or presence of multicast, then length or figures.
pub(super) const STEP_BYTES: usize = 2 + NUMBERS * 8;
/// Three figures for each of three algorithms, and lambda.
const NUMBERS: usize = LAMBDA + 1;
/// Index of lambda; its value is 0 if there is none.
const LAMBDA: usize = 9;

impl Step {
    pub(super) fn emit(self) -> [u8; STEP_BYTES] {
        let (kind, detail, numbers) = match self {
            Self::Broadcast { candidate, bytes } => {
                let mut numbers = [0; NUMBERS];
                numbers[0] = bytes;
                (1, candidate as u8, numbers)
            }
            Self::Done(None) => (2, 0, [0; NUMBERS]),
            Self::Done(Some(figures)) => {
                let Figures { multicast, binomial, chain, lambda_thousandths } = figures;
                let costs = [multicast.unwrap_or_default(), binomial, chain];
                let all = costs.map(|it| [it.level_ns, it.level_byte_ps, it.stream_byte_ps]);
                let mut numbers = [0; NUMBERS];
                numbers[..LAMBDA].copy_from_slice(all.as_flattened());
                numbers[LAMBDA] = lambda_thousandths.unwrap_or(0).into();
                (3, u8::from(multicast.is_some()), numbers)
            }
        };
        let mut bytes = [0; STEP_BYTES];
        (bytes[0], bytes[1]) = (kind, detail);
        for (slot, number) in bytes[2..].as_chunks_mut().0.iter_mut().zip(numbers) {
            *slot = number.to_be_bytes();
        }
        bytes
    }

    pub(super) fn parse(bytes: &[u8; STEP_BYTES]) -> Option<Self> {
        let numbers: Vec<u64> =
            bytes[2..].as_chunks().0.iter().map(|it| u64::from_be_bytes(*it)).collect();
        Some(match bytes[0] {
            1 => {
                let candidate = *Candidate::ALL.get(usize::from(bytes[1]))?;
                Self::Broadcast { candidate, bytes: numbers[0] }
            }
            2 => Self::Done(None),
            3 => {
                let cost = |at: usize| Cost {
                    level_ns: numbers[at],
                    level_byte_ps: numbers[at + 1],
                    stream_byte_ps: numbers[at + 2],
                };
                let multicast = (bytes[1] != 0).then(|| cost(0));
                let (binomial, chain) = (cost(3), cost(6));
                let lambda_thousandths = match u32::try_from(numbers[LAMBDA]).ok()? {
                    0 => None,
                    thousandths => Some(thousandths),
                };
                let figures = Figures { multicast, binomial, chain, lambda_thousandths };
                Self::Done(Some(figures).filter(Figures::is_sound))
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_round_trip() {
        let cost = |seed| Cost {
            level_ns: seed,
            level_byte_ps: seed + 1,
            stream_byte_ps: 1_000_000_000_000 - seed,
        };
        let (multicast, binomial, chain) = (None, cost(5), cost(70_000));
        let figures = Figures { multicast, binomial, chain, lambda_thousandths: None };
        let multicasting = Figures { multicast: Some(cost(9)), ..figures };
        let spreading = Figures { lambda_thousandths: Some(u32::MAX), ..multicasting };
        let broadcasts =
            Candidate::ALL.map(|candidate| Step::Broadcast { candidate, bytes: 1 << 40 });
        let ends = [None, Some(figures), Some(multicasting), Some(spreading)];
        for step in broadcasts.into_iter().chain(ends.map(Step::Done)) {
            assert_eq!(Step::parse(&step.emit()), Some(step));
        }
    }

    #[test]
    fn invalid_steps_are_rejected() {
        let mut bytes = [0; STEP_BYTES];
        bytes[0] = 4;
        assert_eq!(Step::parse(&bytes), None);
        (bytes[0], bytes[1]) = (1, 3);
        assert_eq!(Step::parse(&bytes), None);
        // Figures beyond their bounds are invalid, as is a hop that takes less time than its copy.
        let mut bytes = [u8::MAX; STEP_BYTES];
        bytes[0] = 3;
        bytes[2 + LAMBDA * 8..].fill(0);
        assert_eq!(Step::parse(&bytes), Some(Step::Done(None)));
        let mut bytes = [0; STEP_BYTES];
        (bytes[0], bytes[STEP_BYTES - 2]) = (3, 3);
        assert_eq!(Step::parse(&bytes), Some(Step::Done(None)));
        // A lambda never has so many bits.
        bytes[STEP_BYTES - 8] = 1;
        assert_eq!(Step::parse(&bytes), None);
    }
}
