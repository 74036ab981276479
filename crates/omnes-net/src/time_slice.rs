//! Short time slices, for waiting threads on cores where other programs compute.
//!
//! A thread that a packet wakes has to let the thread on its core use up its time slice, which
//! lasts milliseconds, unless its own slice is the shorter one (Linux 6.12 and later). A short
//! slice does not change a thread's share of the core, and child threads and processes inherit it.
//!
//! The progress thread requests one when it starts. A caller does once it has been kept from its
//! core for long: on machines that the job has to itself, callers are left unchanged. If ranks
//! outnumber cores they would take the core from each other, so the progress thread does not
//! request one, and a caller does only if its turns are late repeatedly, and gets its usual slices
//! back as soon as none has been late for a while.
//!
//! Cost: three system calls each time; none of them needs a privilege, and a kernel that refuses
//! them, or does not support such slices, is not an error.

use omnes_wire::Instant;
use std::cell::Cell;
use std::time::Duration;

/// Slice requested unless settings override it: the shortest that the kernel grants.
const SHORTEST: Duration = Duration::from_micros(100);
/// A thread that yields its core and gets it back only after this time has yielded it to a program
/// that computes: ranks that wait for each other take a twentieth of that.
const LATE_TURN: Duration = Duration::from_millis(1);
/// Beside programs that compute, several turns in this time are late even with short slices; of
/// sixteen ranks that have two cores to themselves, one in ten such periods.
const KEPT_WHERE_CORES_ARE_SHARED: Duration = Duration::from_millis(10);

/// Time slices of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SlicePolicy {
    /// Length of the short ones; zero leaves all threads unchanged.
    pub(crate) length: Duration,
    /// How long a caller keeps them after its last late turn, and the maximum time between two late
    /// turns that makes it request them. `None`: permanently, after the first late turn.
    pub(crate) kept: Option<Duration>,
}

/// Slices that the calling thread has requested.
#[derive(Clone, Copy)]
enum Asked {
    /// Nothing.
    Nothing {
        /// Time at which it was last kept from its core.
        late: Option<Instant>,
    },
    Short {
        /// `None` if its slices have not been changed.
        change: Option<Change>,
        late: Instant,
    },
}

/// Lengths of a thread's slices before and after they were changed, in nanoseconds.
#[derive(Clone, Copy)]
struct Change {
    usual_ns: u64,
    short_ns: u64,
}

thread_local! {
    static ASKED: Cell<Asked> = const { Cell::new(Asked::Nothing { late: None }) };
}

impl SlicePolicy {
    /// If ranks have a core each.
    pub(crate) const OF_OWN_CORE: Self = Self { length: SHORTEST, kept: None };
    /// If ranks outnumber cores.
    pub(crate) const OF_SHARED_CORE: Self =
        Self { length: SHORTEST, kept: Some(KEPT_WHERE_CORES_ARE_SHARED) };

    /// Called by the progress thread when it starts.
    pub(crate) fn on_start(self) {
        if self.kept.is_none() {
            self.ask(Instant::ZERO);
        }
    }

    /// Called when the calling thread has yielded its core for a turn of this length, and has it
    /// back.
    pub(crate) fn on_turn(self, turn: Duration, clock: Instant) {
        if turn > LATE_TURN {
            self.on_late_turn(clock);
        } else if let (Some(kept), Asked::Short { late, .. }) = (self.kept, ASKED.get())
            && clock.since(late) > kept
        {
            restore();
        }
    }

    fn on_late_turn(self, clock: Instant) {
        match (ASKED.get(), self.kept) {
            (Asked::Short { change, .. }, _) => ASKED.set(Asked::Short { change, late: clock }),
            // Occasionally a turn is late even if there are only ranks.
            (Asked::Nothing { late }, Some(kept))
                if late.is_none_or(|late| clock.since(late) > kept) =>
            {
                ASKED.set(Asked::Nothing { late: Some(clock) });
            }
            _ => self.ask(clock),
        }
    }

    fn ask(self, clock: Instant) {
        if !self.length.is_zero() {
            ASKED.set(Asked::Short { change: shorten(self.length), late: clock });
        }
    }
}

/// Gives the calling thread the slices back that it had before it requested short ones, unless the
/// program has changed them meanwhile.
pub(crate) fn restore() {
    if let Asked::Short { change: Some(change), .. } = ASKED.replace(Asked::Nothing { late: None })
        && let Some(own) = attributes()
        && is_usual(&own)
        && own.sched_runtime == change.short_ns
    {
        set_attributes(libc::sched_attr { sched_runtime: change.usual_ns, ..own });
    }
}

/// Requests slices of `length` for the calling thread. Errors are ignored.
fn shorten(length: Duration) -> Option<Change> {
    let own = attributes().filter(|own| is_longer(own, length))?;
    let wanted = length.as_nanos().try_into().unwrap_or(u64::MAX);
    set_attributes(libc::sched_attr { sched_runtime: wanted, ..own });
    // The kernel has limits.
    let short_ns = attributes()?.sched_runtime;
    Some(Change { usual_ns: own.sched_runtime, short_ns })
}

/// True if the scheduler treats the thread as any other.
fn is_usual(own: &libc::sched_attr) -> bool {
    i32::try_from(own.sched_policy) == Ok(libc::SCHED_OTHER)
}

/// True for such a thread with slices longer than `slice`.
fn is_longer(own: &libc::sched_attr, slice: Duration) -> bool {
    is_usual(own) && u128::from(own.sched_runtime) > slice.as_nanos()
}

/// Scheduling attributes of the calling thread.
fn attributes() -> Option<libc::sched_attr> {
    // SAFETY: a structure of numbers, for which zero is a valid value.
    let mut own: libc::sched_attr = unsafe { std::mem::zeroed() };
    let bytes = size_of::<libc::sched_attr>();
    // SAFETY: the kernel writes at most this many bytes, all of which exist.
    let status = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut own, bytes, 0) };
    (status == 0).then_some(own)
}

/// Changes the attributes of the calling thread, if it may.
fn set_attributes(wanted: libc::sched_attr) {
    // SAFETY: the kernel reads the structure, which contains its own length.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const wanted, 0) };
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const LATE: Duration = Duration::from_millis(3);

    fn slice_ns() -> u64 {
        attributes().unwrap().sched_runtime
    }

    /// Runs `body` in a separate thread, with the slices that the thread starts with.
    fn in_a_thread(body: impl FnOnce(u64) + Send + 'static) {
        std::thread::spawn(|| match slice_ns() {
            0 => println!("skipped: a kernel before 6.12 tells of no slices"),
            before => body(before),
        })
        .join()
        .unwrap();
    }

    #[test]
    fn late_thread_gets_shorter_slices_once_and_keeps_other_attributes() {
        in_a_thread(|usual| {
            let before = attributes().unwrap();
            let policy = SlicePolicy { length: Duration::from_micros(300), kept: None };
            policy.on_turn(LATE_TURN, Instant::ZERO);
            assert_eq!(slice_ns(), usual);
            policy.on_turn(LATE, Instant::ZERO);
            SlicePolicy::OF_OWN_CORE.on_turn(LATE, Instant::ZERO);
            let after = attributes().unwrap();
            assert_eq!(after.sched_runtime, usual.min(300_000));
            assert_eq!(after.sched_nice, before.sched_nice);
            assert_eq!(after.sched_policy, before.sched_policy);
        });
    }

    #[test]
    fn thread_keeps_its_slices_when_short_ones_are_disabled() {
        in_a_thread(|usual| {
            let policy = SlicePolicy { length: Duration::ZERO, ..SlicePolicy::OF_OWN_CORE };
            policy.on_start();
            policy.on_turn(LATE, Instant::ZERO);
            assert_eq!(slice_ns(), usual);
        });
    }

    #[test]
    fn slices_on_shared_cores_are_short_while_turns_are_late() {
        in_a_thread(|usual| {
            let policy = SlicePolicy::OF_SHARED_CORE;
            let short = usual.min(100_000);
            let at = |ms| Instant::ZERO + Duration::from_millis(ms);
            policy.on_start();
            assert_eq!(slice_ns(), usual, "the progress thread does not ask");
            for (turn, clock_ms, expected) in [
                (LATE, 100, usual),
                (LATE, 120, usual),
                (LATE, 129, short),
                (Duration::ZERO, 138, short),
                (LATE, 139, short),
                (Duration::ZERO, 149, short),
                (Duration::ZERO, 150, usual),
                (LATE, 151, usual),
                (LATE, 161, short),
            ] {
                policy.on_turn(turn, at(clock_ms));
                assert_eq!(slice_ns(), expected, "{clock_ms} ms");
            }
            restore();
            assert_eq!(slice_ns(), usual);
        });
    }

    #[test]
    fn slices_on_unshared_cores_stay_short_until_restored() {
        in_a_thread(|usual| {
            SlicePolicy::OF_OWN_CORE.on_start();
            SlicePolicy::OF_OWN_CORE.on_turn(Duration::ZERO, Instant::from_ns(u64::MAX));
            assert_eq!(slice_ns(), usual.min(100_000));
            restore();
            restore();
            assert_eq!(slice_ns(), usual);
        });
    }

    #[test]
    fn slices_changed_by_the_program_are_not_restored() {
        in_a_thread(|usual| {
            SlicePolicy::OF_OWN_CORE.on_turn(LATE, Instant::ZERO);
            let others = libc::sched_attr { sched_runtime: usual + 1000, ..attributes().unwrap() };
            set_attributes(others);
            restore();
            assert_eq!(slice_ns(), usual + 1000);
        });
    }

    #[test]
    fn slices_below_the_kernel_minimum_are_restored_too() {
        in_a_thread(|usual| {
            let policy = SlicePolicy { length: Duration::from_nanos(1), kept: None };
            policy.on_turn(LATE, Instant::ZERO);
            restore();
            assert_eq!(slice_ns(), usual);
        });
    }

    #[test]
    fn threads_with_other_policies_or_shorter_slices_are_unaffected() {
        let own = attributes().unwrap();
        let is_longer = |policy: i32, runtime| {
            let of =
                libc::sched_attr { sched_policy: policy as u32, sched_runtime: runtime, ..own };
            is_longer(&of, SHORTEST)
        };
        assert!(is_longer(libc::SCHED_OTHER, 2_800_000));
        assert!(!is_longer(libc::SCHED_OTHER, 100_000));
        assert!(!is_longer(libc::SCHED_OTHER, 0), "of a kernel that tells of none");
        assert!(!is_longer(libc::SCHED_FIFO, 2_800_000));
        assert!(!is_longer(libc::SCHED_BATCH, 2_800_000));
    }
}
