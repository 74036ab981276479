//! The driver: which thread drives the core, and how the others wait.
//!
//! A caller that waits drives the core itself, so there is no thread hand-off on the latency path.
//! Of several waiting callers, one drives and the others sleep until one of their operations has
//! ended. When no caller has been inside for a tick, a thread that sleeps in `poll` takes over, so
//! that a rank that computes still acknowledges, repairs and sends keep-alives; the next caller
//! takes the core back with a single store, without a system call. Callers that come and go more
//! often than that poll everywhere themselves, and if they have not for a while, the thread does: a
//! rank that only sends, or that always finds the packet it waits for immediately, must also hear
//! the other ranks. While one call stays inside, the thread polls less and less often
//! ([`crate::idle_sleep`]); the last caller to leave then wakes it. If the program's callback keeps
//! all callers for long, no caller drives either, and the thread takes over as well.
//!
//! ```text
//!   caller inside ──leaves──▶ nobody, thread looks every tick ──a whole tick──▶ thread in poll
//!        ▲                                │                                          │
//!        └──────────── enters ────────────┴──────────────── enters ──────────────────┘
//! ```

use crate::broadcast_yield::BroadcastYield;
use crate::core::{Core, Look};
use crate::idle_sleep::{IdleSleep, TICK};
use crate::job::EngineCounters;
use crate::live::Publisher;
use crate::operations::Spot;
use crate::poller::{Poller, Woken};
use crate::queue_request::{Opening, QueueRequest};
use crate::waiting::{Stage, WaitPolicy, Waiting};
use crate::while_waiting::{CallbackTimer, WhileWaiting};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// Longest sleep, so that nothing depends on a single wake-up.
pub(crate) const SLEEP_MAX: Duration = Duration::from_millis(100);
/// Polls of a waiting caller per poll of all spots; the others are of its own spot only.
const POLLS_PER_SWEEP: u32 = 16;
/// The same while the NIC reports that the sockets are empty, so that polls cost no system call.
const POLLS_PER_QUIET_SWEEP: u32 = 64;

/// Why a wait has ended without a result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WaitError {
    /// The time limit has expired.
    Late,
    /// The program's callback has ended the wait.
    Interrupted,
}

pub(crate) struct Inside {
    pub(crate) core: Core,
    pub(crate) is_driven: bool,
    pub(crate) sleeps_until: Option<Instant>,
}

pub(crate) struct Shared {
    pub(crate) inside: Mutex<Inside>,
    pub(crate) ended: Condvar,
    pub(crate) poller: Poller,
    pub(crate) wait: WaitPolicy,
    broadcast_yield: BroadcastYield,
    while_waiting: Option<WhileWaiting>,
    /// Callers that sleep until the driver ends one of their operations.
    pub(crate) waiters: AtomicU32,
    /// Calls so far, and callers inside; the progress thread checks both.
    pub(crate) entries: AtomicU64,
    pub(crate) callers: AtomicU32,
    /// Calls of the program's callback so far, and callers inside it.
    callback_calls: AtomicU64,
    in_callback: AtomicU32,
    /// Calls that do not count towards opening a receive queue, and callers during which none may
    /// be opened.
    pub(crate) uncounted: AtomicU64,
    pub(crate) quiet_callers: AtomicU32,
    pub(crate) is_over: AtomicBool,
    idle_sleep: IdleSleep,
    pub(crate) sleeps: AtomicU64,
    pub(crate) yields: AtomicU64,
    /// Counters published to other processes; unset until some are published.
    pub(crate) live: OnceLock<Publisher>,
}

impl Shared {
    pub(crate) fn new(
        core: Core,
        poller: Poller,
        wait: WaitPolicy,
        while_waiting: Option<WhileWaiting>,
    ) -> Self {
        let inside = Inside { core, is_driven: false, sleeps_until: None };
        Self {
            inside: Mutex::new(inside),
            ended: Condvar::new(),
            poller,
            wait,
            broadcast_yield: BroadcastYield::new(&wait),
            while_waiting,
            waiters: AtomicU32::new(0),
            entries: AtomicU64::new(0),
            callers: AtomicU32::new(0),
            callback_calls: AtomicU64::new(0),
            in_callback: AtomicU32::new(0),
            uncounted: AtomicU64::new(0),
            quiet_callers: AtomicU32::new(0),
            is_over: AtomicBool::new(false),
            idle_sleep: IdleSleep::default(),
            sleeps: AtomicU64::new(0),
            yields: AtomicU64::new(0),
            live: OnceLock::new(),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inside> {
        // A panic inside is a bug of ours; the other callers still end with an error of their own.
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, Inside>> {
        match self.inside.try_lock() {
            Ok(inside) => Some(inside),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Registers a caller, which is inside until the returned guard is dropped.
    pub(crate) fn enter_caller(&self) -> CallerGuard<'_> {
        self.callers.fetch_add(1, Ordering::Relaxed);
        self.entries.fetch_add(1, Ordering::Relaxed);
        CallerGuard { shared: self }
    }

    /// Runs `step` with the core.
    pub(crate) fn enter<T>(&self, step: impl FnOnce(&mut Core) -> T) -> T {
        self.entries.fetch_add(1, Ordering::Relaxed);
        let mut inside = self.lock();
        let ended = inside.core.operations.ended;
        let result = step(&mut inside.core);
        self.wake_waiters(&mut inside, ended);
        result
    }

    /// Wakes the threads that wait for what has just happened.
    pub(crate) fn wake_waiters(&self, inside: &mut Inside, ended_before: u64) {
        if inside.core.operations.ended != ended_before && self.waiters.load(Ordering::Relaxed) > 0
        {
            self.ended.notify_all();
        }
        if let Some(until) = inside.sleeps_until {
            let timeout = inside.core.next_timeout();
            let is_sooner = timeout.is_some_and(|timeout| Instant::now() + timeout < until);
            if is_sooner
                || inside.core.operations.ended != ended_before
                || inside.core.blocked_socket().is_some()
            {
                self.poller.wake();
            }
        }
    }

    /// Waits for `done` according to `policy`, driving the core unless another caller does.
    pub(crate) fn drive<T>(
        &self,
        policy: WaitPolicy,
        limit: Option<Duration>,
        spot: Spot,
        mut done: impl FnMut(&mut Core) -> Option<T>,
    ) -> Result<T, WaitError> {
        // A limit that exceeds the clock's range is no limit.
        let until = limit.and_then(|limit| Instant::now().checked_add(limit));
        let mut looks = 0;
        let mut has_news = false;
        let mut inside = self.lock();
        inside.core.begin_wait();
        let mut waiting = Waiting::new(policy, inside.core.stepped_at());
        let callback = self.while_waiting.as_ref();
        let mut timer = CallbackTimer::new(callback, inside.core.stepped_at(), policy.callbacks);
        loop {
            let ended = inside.core.operations.ended;
            if !inside.is_driven && !has_news {
                looks += 1;
                let is_quiet = inside.core.is_quiet();
                has_news = inside.core.progress(look(spot, looks, is_quiet), &self.poller);
            }
            if has_news {
                waiting.on_news(inside.core.stepped_at());
            }
            if let Some(result) = done(&mut inside.core) {
                self.wake_waiters(&mut inside, ended);
                self.hand_over(&inside);
                self.broadcast_yield.on_wait(spot == Spot::Group);
                return Ok(result);
            }
            self.wake_waiters(&mut inside, ended);
            if until.is_some_and(|until| Instant::now() >= until) {
                self.hand_over(&inside);
                return Err(WaitError::Late);
            }
            if let Some(callback) = timer.due(inside.core.stepped_at()) {
                drop(inside);
                let is_over = self.run_callback(callback).is_break();
                // Any operation may have ended meanwhile: the core is polled before this caller
                // sleeps.
                (inside, has_news) = (self.lock(), false);
                timer.on_called(inside.core.now());
                if is_over {
                    // A result that became available meanwhile is not lost.
                    let result = done(&mut inside.core).ok_or(WaitError::Interrupted);
                    self.hand_over(&inside);
                    return result;
                }
                continue;
            }
            (inside, has_news) = if inside.is_driven {
                (self.wait_for_driver(inside), false)
            } else {
                self.yield_core(inside, &mut waiting)
            };
        }
    }

    fn run_callback(&self, callback: &WhileWaiting) -> ControlFlow<()> {
        self.in_callback.fetch_add(1, Ordering::SeqCst);
        self.callback_calls.fetch_add(1, Ordering::Relaxed);
        let _guard = InCallback { shared: self };
        callback.call()
    }

    /// Longest sleep of a caller, which must not miss the calls of its callback.
    fn caller_sleep_max(&self) -> Duration {
        self.while_waiting.as_ref().map_or(SLEEP_MAX, |callback| callback.interval().min(SLEEP_MAX))
    }

    /// Stops driving: one of the waiting callers drives instead, and a sleeping one handles the
    /// packets for which this one was woken and which it leaves.
    fn hand_over(&self, inside: &Inside) {
        if inside.core.rings.leaves_sleepers() {
            self.poller.wake();
        }
        if !inside.is_driven && self.waiters.load(Ordering::Relaxed) > 0 {
            self.ended.notify_all();
        }
    }

    fn wait_for_driver<'a>(&'a self, inside: MutexGuard<'a, Inside>) -> MutexGuard<'a, Inside> {
        self.waiters.fetch_add(1, Ordering::Relaxed);
        let result = self.ended.wait_timeout(inside, TICK.min(self.caller_sleep_max()));
        self.waiters.fetch_sub(1, Ordering::Relaxed);
        result.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Releases the core for a moment, in a way that depends on how long the wait has lasted. True
    /// if packets have arrived meanwhile and were read.
    fn yield_core<'a>(
        &'a self,
        mut inside: MutexGuard<'a, Inside>,
        waiting: &mut Waiting,
    ) -> (MutexGuard<'a, Inside>, bool) {
        let stage = match waiting.next(inside.core.stepped_at()) {
            // Other ranks get their turn when the window is full: each turn costs two switches.
            Stage::GiveWay if inside.core.may_send_on() => Stage::Spin,
            stage => stage,
        };
        match stage {
            Stage::Spin => {
                inside.core.watch_sometimes(&self.poller);
                drop(inside);
                std::hint::spin_loop();
                (self.lock(), false)
            }
            Stage::GiveWay => {
                inside.core.watch_sometimes(&self.poller);
                drop(inside);
                self.yields.fetch_add(1, Ordering::Relaxed);
                std::thread::yield_now();
                (self.lock(), false)
            }
            Stage::Block => {
                inside.is_driven = true;
                let driving = Driving { shared: self };
                let (mut inside, has_news) = self.sleep(inside, self.caller_sleep_max());
                std::mem::forget(driving);
                inside.is_driven = false;
                (inside, has_news)
            }
        }
    }

    /// Yields to other ranks of the core, if that is due, before a caller enters what all ranks
    /// wait for.
    pub(crate) fn yield_core_if_due(&self) {
        if self.broadcast_yield.is_due() {
            let since = Instant::now();
            self.yields.fetch_add(1, Ordering::Relaxed);
            std::thread::yield_now();
            self.broadcast_yield.on_turns(since.elapsed());
        }
    }

    /// Blocks until the core has news, for at most `longest`, and handles them.
    fn sleep<'a>(
        &'a self,
        mut inside: MutexGuard<'a, Inside>,
        longest: Duration,
    ) -> (MutexGuard<'a, Inside>, bool) {
        let timeout = inside.core.next_timeout().unwrap_or(longest).min(longest);
        let blocked = inside.core.blocked_socket();
        if !inside.core.arm() {
            return self.end_sleep(inside, Woken::default());
        }
        // The thread that sleeps longest is the one to wake for a timeout that is due sooner.
        inside.sleeps_until = inside.sleeps_until.max(Some(Instant::now() + timeout));
        drop(inside);
        self.sleeps.fetch_add(1, Ordering::Relaxed);
        let woken = self.poller.sleep(timeout, blocked);
        let mut inside = self.lock();
        if !inside.core.disarm() {
            inside.sleeps_until = None;
        } else if woken.by_waker || woken.by_socket.is_some() {
            // A packet may be meant for another sleeping thread, which must poll, too.
            self.poller.wake();
        }
        self.end_sleep(inside, woken)
    }

    /// Lets the core handle the news that ended a sleep.
    fn end_sleep<'a>(
        &'a self,
        mut inside: MutexGuard<'a, Inside>,
        woken: Woken,
    ) -> (MutexGuard<'a, Inside>, bool) {
        let ended = inside.core.operations.ended;
        let from_rings = inside.core.read_rings() | inside.core.read_queue();
        let from_socket = woken.by_socket.is_some_and(|index| inside.core.read_socket(index));
        let has_news = from_rings || from_socket;
        inside.core.step();
        if woken.by_connection {
            inside.core.check_watch(&self.poller);
        }
        self.wake_waiters(&mut inside, ended);
        (inside, has_news)
    }

    // ---- nobody inside --------------------------------------------------------------------

    /// The progress thread.
    pub(crate) fn run_unattended(&self, mut request: Option<QueueRequest>) {
        self.wait.slices.on_start();
        let mut opening = None;
        let mut sleep_time = TICK;
        let mut seen = self.entries.load(Ordering::Relaxed);
        let mut seen_calls = 0;
        while !self.is_over.load(Ordering::SeqCst) {
            self.idle_sleep
                .sleep(sleep_time, || self.is_attended() && !self.is_over.load(Ordering::SeqCst));
            self.publish();
            let entries = self.entries.load(Ordering::Relaxed);
            let counted = entries.saturating_sub(self.uncounted.load(Ordering::Relaxed));
            let may_open = self.quiet_callers.load(Ordering::Relaxed) == 0;
            if let Some(due) = request.take_if(|request| may_open && request.is_due(counted)) {
                opening = due.start();
            }
            if let Some((queue, sockets)) =
                opening.take_if(|opening| opening.is_over()).and_then(Opening::take)
            {
                self.lock().core.use_queue(queue, &sockets);
            }
            let (is_attended, is_new) = (self.is_attended(), entries != seen);
            let calls = self.callback_calls.load(Ordering::Relaxed);
            let is_in_same_callback = self.is_left_alone() && calls == seen_calls;
            seen_calls = calls;
            // After a long sleep it is not known that no caller has been inside for a whole tick.
            let is_empty = !is_attended && sleep_time == TICK;
            if !is_new && (is_empty || is_attended && is_in_same_callback) {
                self.take_over(entries);
            } else if is_new {
                self.catch_up();
            }
            let may_last = is_attended && !is_new && opening.is_none();
            sleep_time = if may_last { SLEEP_MAX.min(2 * sleep_time) } else { TICK };
            seen = self.entries.load(Ordering::Relaxed);
        }
    }

    fn is_attended(&self) -> bool {
        self.callers.load(Ordering::SeqCst) > 0
    }

    /// True if all callers inside are kept by the program's callback.
    fn is_left_alone(&self) -> bool {
        self.callers.load(Ordering::SeqCst) == self.in_callback.load(Ordering::SeqCst)
    }

    /// Ends the progress thread.
    pub(crate) fn stop(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.poller.wake();
        self.idle_sleep.end();
    }

    /// Publishes the counters if that is due and no thread holds the core.
    fn publish(&self) {
        let Some(live) = self.live.get().filter(|live| live.is_due()) else { return };
        let Some(mut inside) = self.try_lock() else { return };
        let counters = self.counters(&mut inside.core);
        drop(inside);
        live.publish(&counters);
    }

    /// Everything counted so far.
    pub(crate) fn counters(&self, core: &mut Core) -> EngineCounters {
        EngineCounters {
            sleeps: self.sleeps.load(Ordering::Relaxed),
            yields: self.yields.load(Ordering::Relaxed),
            ..EngineCounters::of(core)
        }
    }

    /// Does the work left undone by callers that come and go too often for this thread to take
    /// over, unless one of them holds the core right now.
    fn catch_up(&self) {
        let Some(mut inside) = self.try_lock() else { return };
        let ended = inside.core.operations.ended;
        inside.core.catch_up(&self.poller);
        self.wake_waiters(&mut inside, ended);
    }

    /// Drives the core until a caller enters.
    fn take_over(&self, entries: u64) {
        let is_alone = || {
            self.entries.load(Ordering::Relaxed) == entries
                && self.is_left_alone()
                && !self.is_over.load(Ordering::SeqCst)
        };
        while is_alone() {
            self.publish();
            let mut inside = self.lock();
            let ended = inside.core.operations.ended;
            inside.core.progress(Look::Everywhere, &self.poller);
            inside.core.step();
            self.wake_waiters(&mut inside, ended);
            if is_alone() {
                drop(self.sleep(inside, SLEEP_MAX));
            }
        }
    }
}

/// A caller inside; also leaves if the caller's callback panics.
pub(crate) struct CallerGuard<'a> {
    shared: &'a Shared,
}

impl Drop for CallerGuard<'_> {
    fn drop(&mut self) {
        if self.shared.callers.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.shared.idle_sleep.end();
        }
    }
}

/// A caller in the program's callback, which may panic.
struct InCallback<'a> {
    shared: &'a Shared,
}

impl Drop for InCallback<'_> {
    fn drop(&mut self) {
        self.shared.in_callback.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A caller that drives while it sleeps. Dropped only if it panics: another one must drive then.
struct Driving<'a> {
    shared: &'a Shared,
}

impl Drop for Driving<'_> {
    fn drop(&mut self) {
        self.shared.lock().is_driven = false;
        self.shared.ended.notify_all();
    }
}

/// Where a caller that waits at `spot` polls, after `looks` polls that found nothing.
fn look(spot: Spot, looks: u32, is_quiet: bool) -> Look {
    let per_sweep = if is_quiet { POLLS_PER_QUIET_SWEEP } else { POLLS_PER_SWEEP };
    match spot {
        _ if looks.is_multiple_of(per_sweep) => Look::Everywhere,
        Spot::At(rank) => Look::At(rank),
        Spot::Group => Look::Group,
        Spot::Page => Look::Pages,
        Spot::Anywhere => Look::Anywhere,
    }
}
