//! Chooses the number of a new communicator of a job: one that is new to all its ranks.
//!
//! Every rank reports the number that it would assign next, and the highest is tried. It is claimed
//! in each process by one atomic step, because another thread may be creating a communicator with
//! other ranks at the same time. Then all tell each other whether they could claim it, and which
//! number they would assign next; if any could not, they begin again.
//!
//! ```text
//!   two communicators at once:   process a: first claims 5, second cannot
//!                                process b: second claims 5, first cannot   -> both begin again
//! ```
//!
//! Guarantees: no two communicators that share a process have the same number, whatever its threads
//! do. Two that contend separate: each skips a distance drawn by its rank 0, from a range that
//! doubles with each attempt, and of two different numbers the higher can be claimed in all
//! processes.
//!
//! A number is not reused when its communicator has been dropped. So a late packet, question or
//! repair of a former communicator, one that another member has not dropped yet, or a message that
//! was never received, is never taken for one of a new communicator, and dropping needs no
//! agreement. There are enough numbers for that: at a thousand communicators per second they last
//! for 37 hours.
//!
//! Cost: one exchange besides that of the numbers, and one more per attempt that fails. A number
//! whose claim failed is not used again.

use crate::collective::Collective;
use crate::error::Error;
use crate::exchange::Exchange;
use omnes_wire::CommunicatorId;
use std::sync::atomic::{AtomicU32, Ordering};

/// The longest distance skipped is below two to this power.
const DISTANCE_BITS_MAX: u32 = 8;
/// The highest number of a communicator: a notice holds it beside a collective's number.
const NUMBER_MAX: u32 = u32::MAX >> Collective::BITS;

/// The numbers of a job's communicators, as far as this process knows.
pub(crate) struct Numbers {
    next: AtomicU32,
}

impl Default for Numbers {
    fn default() -> Self {
        // The communicator of all ranks has number 0.
        Self { next: AtomicU32::new(1) }
    }
}

/// Report of a rank after an attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Attempt {
    has_claimed: bool,
    next: u32,
    draw: u32,
}

const ATTEMPT_BYTES: usize = 9;

impl Attempt {
    fn emit(self) -> [u8; ATTEMPT_BYTES] {
        let mut bytes = [0; ATTEMPT_BYTES];
        bytes[0] = u8::from(self.has_claimed);
        bytes[1..5].copy_from_slice(&self.next.to_be_bytes());
        bytes[5..].copy_from_slice(&self.draw.to_be_bytes());
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (has_claimed, rest) = bytes.split_first()?;
        let (next, rest) = rest.split_first_chunk::<4>()?;
        let draw = u32::from_be_bytes(rest.try_into().ok()?);
        Some(Self { has_claimed: *has_claimed != 0, next: u32::from_be_bytes(*next), draw })
    }
}

impl Numbers {
    /// The number that this process would assign next.
    pub(crate) fn next(&self) -> u32 {
        self.next.load(Ordering::SeqCst)
    }

    /// Claims `number` for the caller, unless it or a higher one has been claimed.
    fn claim(&self, number: u32) -> bool {
        self.next.fetch_max(number + 1, Ordering::SeqCst) <= number
    }

    /// Agrees on a number that is new to all `ranks`; `highest` is the highest that any of them
    /// would assign next. Collective.
    ///
    /// # Errors
    /// [`Error::TooManyCommunicators`], on all ranks.
    pub(crate) fn agree(
        &self,
        ranks: &dyn Exchange,
        highest: u32,
    ) -> Result<CommunicatorId, Error> {
        let mut number = highest;
        for attempt in 1.. {
            if number > NUMBER_MAX {
                return Err(Error::TooManyCommunicators { limit: NUMBER_MAX });
            }
            let has_claimed = self.claim(number);
            // Without random numbers, which every Linux has, contenders separate by their timing.
            let draw = u32::from_be_bytes(omnes_net::random().unwrap_or_default());
            let own = Attempt { has_claimed, next: self.next(), draw };
            let table = ranks.allgather(&own.emit())?;
            let all: Option<Vec<Attempt>> =
                table.chunks(ATTEMPT_BYTES).map(Attempt::parse).collect();
            let all = all.filter(|all| !all.is_empty());
            let all = all.ok_or(Error::Mismatch { what: "the format of a claim" })?;
            if all.iter().all(|one| one.has_claimed) {
                return Ok(CommunicatorId(number));
            }
            let distance = all[0].draw % (1 << DISTANCE_BITS_MAX.min(attempt));
            let highest = all.iter().map(|one| one.next).max().unwrap_or(0);
            number = highest.saturating_add(distance);
        }
        unreachable!("numbers grow with each attempt, and end")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::two_nodes::on_two_nodes;
    use crate::{Communicator, Multicast, NicChoice, ReduceOp};
    use std::sync::{Barrier, Condvar, Mutex};

    #[test]
    fn attempts_round_trip() {
        for has_claimed in [false, true] {
            let attempt = Attempt { has_claimed, next: 70_000, draw: u32::MAX };
            assert_eq!(Attempt::parse(&attempt.emit()), Some(attempt));
        }
        assert_eq!(Attempt::parse(&[0; ATTEMPT_BYTES - 1]), None);
        assert_eq!(Attempt::parse(&[0; ATTEMPT_BYTES + 1]), None);
    }

    #[test]
    fn number_can_be_claimed_only_once() {
        let numbers = Numbers::default();
        assert_eq!(numbers.next(), 1);
        assert!(numbers.claim(5) && !numbers.claim(5) && !numbers.claim(4));
        assert_eq!(numbers.next(), 6);
        assert!(numbers.claim(6));
    }

    /// Creates communicators whose numbers begin above `number` and drops them; each receives the
    /// messages sent in it, and not those that were never received in the one before.
    fn make_and_drop_above(world: &Communicator, number: u32) {
        world.barrier().unwrap();
        world.job().numbers.claim(number);
        for round in 0..5u32 {
            let copy = world.dup().unwrap();
            assert!(copy.inner.id.0 > number, "{:?}", copy.inner.id);
            let own = round.to_be_bytes();
            let mut came = [0; 4];
            match copy.rank() {
                0 => (0..2).for_each(|_| copy.send(1, 7, &own).unwrap()),
                _ => assert_eq!(copy.recv(0, 7, &mut came).unwrap().bytes, 4),
            }
            let root = round % 2;
            if copy.rank() == root {
                came = own;
            }
            (0..20).for_each(|_| copy.barrier().unwrap());
            copy.bcast(root, &mut came).unwrap();
            assert_eq!(came, own);
            let mut sum = [round];
            copy.allreduce(&mut sum, ReduceOp::Sum).unwrap();
            assert_eq!(sum, [2 * round]);
        }
    }

    #[test]
    fn communicators_work_with_numbers_of_all_lengths() {
        let body: fn(&Communicator) = |world| {
            for number in [65_533, NUMBER_MAX - 100] {
                make_and_drop_above(world, number);
            }
        };
        on_two_nodes(|_| {}, body);
        on_two_nodes(|config| config.multicast = Multicast::Off, body);
        on_two_nodes(|config| config.shared_memory = true, body);
    }

    #[test]
    fn existing_communicators_keep_working_when_numbers_run_out() {
        on_two_nodes(
            |_| {},
            |world| {
                let copy = world.dup().unwrap();
                // No rank claims before all have joined.
                world.barrier().unwrap();
                world.job().numbers.claim(NUMBER_MAX);
                assert!(matches!(world.dup(), Err(Error::TooManyCommunicators { .. })));
                for _ in 0..40 {
                    world.barrier().unwrap();
                    let mut one = [1u32];
                    copy.allreduce(&mut one, ReduceOp::Sum).unwrap();
                    assert_eq!(one, [2]);
                }
            },
        );
    }

    #[test]
    fn barriers_without_a_slot_use_no_number() {
        on_two_nodes(
            |config| config.nic = NicChoice::User,
            |world| {
                let before = world.job().numbers.next();
                (0..40).for_each(|_| world.barrier().unwrap());
                assert_eq!(world.job().numbers.next(), before);
            },
        );
    }

    /// The two ranks of a communicator to be created, whose threads take turns with those of
    /// another one as the test requires.
    struct Pair<'a> {
        rank: u32,
        rows: &'a Mutex<[Vec<u8>; 2]>,
        both: &'a Barrier,
        /// Claims made so far in this rank's process, by both pairs.
        claims: &'a (Mutex<u32>, Condvar),
        calls: Mutex<u32>,
        attempts: &'a Mutex<u32>,
    }

    impl Exchange for Pair<'_> {
        fn rank(&self) -> u32 {
            self.rank
        }

        fn size(&self) -> u32 {
            2
        }

        fn allgather(&self, own: &[u8]) -> Result<Vec<u8>, Error> {
            let mut calls = self.calls.lock().unwrap();
            *calls += 1;
            if *calls == 1 {
                // The second thread of its process may claim now; no rank begins again before that.
                let (claims, changed) = self.claims;
                *claims.lock().unwrap() += 1;
                changed.notify_all();
                drop(changed.wait_while(claims.lock().unwrap(), |claims| *claims < 2).unwrap());
            }
            *self.attempts.lock().unwrap() = *calls;
            self.rows.lock().unwrap()[self.rank as usize] = own.to_vec();
            self.both.wait();
            let all = self.rows.lock().unwrap().concat();
            self.both.wait();
            Ok(all)
        }
    }

    /// In process 0 the first pair claims the number first, in process 1 the second pair: neither
    /// can get it.
    #[test]
    fn colliding_contenders_agree_on_different_numbers() {
        let processes = [Numbers::default(), Numbers::default()];
        let claims: [(Mutex<u32>, Condvar); 2] = Default::default();
        let rows: [Mutex<[Vec<u8>; 2]>; 2] = Default::default();
        let attempts: [Mutex<u32>; 2] = Default::default();
        let both = [Barrier::new(2), Barrier::new(2)];
        let run = |pair: usize, rank: usize| {
            if pair != rank {
                let (count, changed) = &claims[rank];
                drop(changed.wait_while(count.lock().unwrap(), |count| *count < 1).unwrap());
            }
            let exchange = Pair {
                rank: rank as u32,
                rows: &rows[pair],
                both: &both[pair],
                claims: &claims[rank],
                calls: Mutex::default(),
                attempts: &attempts[pair],
            };
            processes[rank].agree(&exchange, 1).unwrap().0
        };
        let ids = std::thread::scope(|scope| {
            let start = |(pair, rank)| {
                scope.spawn({
                    let run = &run;
                    move || run(pair, rank)
                })
            };
            let threads = [(0, 0), (0, 1), (1, 0), (1, 1)].map(start);
            threads.map(|thread| thread.join().unwrap())
        });
        assert_eq!((ids[0], ids[2]), (ids[1], ids[3]), "both ranks of a pair agree");
        assert_ne!(ids[0], ids[2], "pairs share processes, so not a number");
        assert!(attempts.iter().all(|count| *count.lock().unwrap() > 1), "both began again");
    }

    #[test]
    fn exhausted_numbers_are_reported_as_an_error() {
        struct Alone;
        impl Exchange for Alone {
            fn rank(&self) -> u32 {
                0
            }

            fn size(&self) -> u32 {
                1
            }

            fn allgather(&self, own: &[u8]) -> Result<Vec<u8>, Error> {
                Ok(own.to_vec())
            }
        }
        let numbers = Numbers::default();
        assert_eq!(numbers.agree(&Alone, NUMBER_MAX).unwrap(), CommunicatorId(NUMBER_MAX));
        for highest in [numbers.next(), u32::MAX] {
            let error = numbers.agree(&Alone, highest).unwrap_err();
            assert!(matches!(error, Error::TooManyCommunicators { limit: NUMBER_MAX }));
        }
    }
}
