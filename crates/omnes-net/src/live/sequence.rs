//! Values of one moment, read without a lock: their sequence word is odd while they change.
//!
//! ```text
//!   writer                              reader
//!   W1  sequence = odd                  R1  look at sequence
//!   W2  release fence                   R2  acquire fence
//!   W3  values                          R3  look at values
//!   W4  sequence = next even, release   R4  acquire fence
//!                                       R5  look at sequence
//! ```
//!
//! A reader that finds the same even number at R1 and R5 has values of one moment: a value of a
//! later change (W3) implies that change's odd number (W1, by W2 and R4), so R5 would have found a
//! different number; and values older than those of R1's number cannot be found, by W4 and R2.
//! Neither side waits: a reader retries, a limited number of times.

use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Attempts to read values that change all the time, after which they are returned as they are.
const LOOKS_MAX: u32 = 64;

/// Changes values by `store`, which must store them as atomics; no other thread may do so
/// meanwhile.
pub(super) fn change(sequence: &AtomicU64, store: impl FnOnce()) {
    let before = sequence.load(Ordering::Relaxed);
    sequence.store(before.wrapping_add(1), Ordering::Relaxed); // W1
    fence(Ordering::Release); // W2
    store();
    sequence.store(before.wrapping_add(2), Ordering::Release); // W4
}

/// Returns the result of `values`, and true if it is of one moment; `sequence` reads the word.
///
/// # Errors
/// The errors of `sequence` and `values`.
pub(super) fn look<T, E>(
    sequence: impl Fn() -> Result<u64, E>,
    values: impl Fn() -> Result<T, E>,
) -> Result<(T, bool), E> {
    let mut looks = 1;
    loop {
        let before = sequence()?;
        fence(Ordering::Acquire); // R2
        let found = values()?;
        fence(Ordering::Acquire); // R4
        let is_whole = before.is_multiple_of(2) && before == sequence()?;
        if is_whole || looks == LOOKS_MAX {
            return Ok((found, is_whole));
        }
        looks += 1;
        std::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::convert::Infallible;
    use std::sync::atomic::Ordering::Relaxed;

    /// Runs in Miri, too, which shows what weakly ordered processors may do.
    #[test]
    fn whole_snapshots_are_consistent_and_never_go_back_in_time() {
        let changes = if cfg!(miri) { 12 } else { 20_000 };
        let (number, values) = (AtomicU64::new(0), [const { AtomicU64::new(0) }; 3]);
        let latest = std::thread::scope(|scope| {
            scope.spawn(|| {
                for change_number in 1..=changes {
                    change(&number, || {
                        values.iter().for_each(|value| value.store(change_number, Relaxed));
                    });
                }
            });
            let mut latest = 0;
            while latest < changes {
                let read = || Ok::<_, Infallible>(values.each_ref().map(|it| it.load(Relaxed)));
                let (found, is_whole) = look(|| Ok(number.load(Relaxed)), read).unwrap();
                if is_whole {
                    assert!(found == [found[0]; 3] && found[0] >= latest, "{found:?}, {latest}");
                    latest = found[0];
                }
            }
            latest
        });
        assert_eq!(latest, changes);
    }

    #[test]
    fn snapshot_from_a_writer_stopped_midway_is_marked_as_torn() {
        let found = look(|| Ok::<_, Infallible>(7), || Ok("torn"));
        assert_eq!(found, Ok(("torn", false)));
    }
}
