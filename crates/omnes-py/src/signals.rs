//! Python's signal handlers get their turn while a call waits: so Ctrl-C ends the wait, and what a
//! program does when a launcher ends its job is done in time. Limits of time are looked at, too.
//!
//! What a handler raises is kept for the call, which has no other way to it: the wait ends with
//! [`omnes::Error::Interrupted`], and `failure` raises what is kept instead. An operation that has
//! ended all the same, as during the handler, has ended: a limit is not told for it, but what a
//! handler has raised is, since it is to reach the program at once.

use crate::limit;
use omnes::WhileWaiting;
use pyo3::prelude::*;
use std::cell::Cell;
use std::ops::ControlFlow;
use std::thread::LocalKey;
use std::time::Duration;

/// Time between two turns of the handlers in a wait: soon enough for who has pressed a key, and too
/// seldom to be felt where other threads hold the interpreter's lock.
pub(crate) const INTERVAL: Duration = Duration::from_millis(50);

/// What has ended a wait.
pub(crate) enum Raised {
    ByHandler(PyErr),
    ByLimit(PyErr),
}

impl Raised {
    pub(crate) fn into_error(self) -> PyErr {
        match self {
            Self::ByHandler(error) | Self::ByLimit(error) => error,
        }
    }
}

thread_local! {
    static RAISED: Cell<Option<Raised>> = const { Cell::new(None) };

    /// True while this thread leaves a job.
    static LEAVES: Cell<bool> = const { Cell::new(false) };

    /// True while this thread lets go of what waits for its end.
    static LETS_GO: Cell<bool> = const { Cell::new(false) };
}

/// What calls of this package do while they wait.
pub(crate) fn while_waiting() -> WhileWaiting {
    WhileWaiting::every(INTERVAL, || {
        if LETS_GO.get() {
            return ControlFlow::Continue(());
        }
        let earlier = take_raised();
        // Without an interpreter, as when it ends, there are no handlers.
        let by_handler = Python::try_attach(|py| py.check_signals().err()).flatten();
        let raised = by_handler.map(Raised::ByHandler);
        let raised = raised.or_else(|| limit::exceeded().map(Raised::ByLimit));
        // What an earlier wait of the call was to end by, which had got what it waited for, ends
        // this one. But leaving waits for the last answers, whatever has ended its barrier.
        let is_over = raised.is_some() || (earlier.is_some() && !LEAVES.get());
        // Also where there is none: the handler may have left one, by what it has let go of.
        keep_raised(match earlier {
            Some(Raised::ByHandler(_)) => earlier,
            Some(Raised::ByLimit(_)) | None => raised.or(earlier),
        });
        if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
}

/// Has set a flag of this thread until it is dropped.
struct During {
    flag: &'static LocalKey<Cell<bool>>,
    before: bool,
}

impl During {
    fn new(flag: &'static LocalKey<Cell<bool>>) -> Self {
        Self { flag, before: flag.replace(true) }
    }
}

impl Drop for During {
    fn drop(&mut self) {
        self.flag.set(self.before);
    }
}

/// Leaves a job.
pub(crate) fn leaving<T>(leave: impl FnOnce() -> T) -> T {
    let _during = During::new(&LEAVES);
    leave()
}

/// Drops what may wait for its end meanwhile, while other threads go on. It cannot raise anything,
/// so handlers have their turn afterwards, by the interpreter.
pub(crate) fn let_go<T: Send>(value: T) {
    Python::attach(|py| {
        py.detach(|| {
            let _during = During::new(&LETS_GO);
            drop(value);
        });
    });
}

/// What a handler has raised, or a limit, in the waits of this thread's call that has just ended.
pub(crate) fn take_raised() -> Option<Raised> {
    RAISED.take()
}

/// Keeps it for the call that this thread is in.
pub(crate) fn keep_raised(raised: Option<Raised>) {
    RAISED.set(raised);
}

/// Before a call: forgets what was left by what was let go of before, which cannot raise.
pub(crate) fn forget_raised() {
    drop(take_raised());
}

/// After an operation that has ended well: raises what a handler has raised meanwhile. A limit is
/// none of it any more.
pub(crate) fn raise_by_handler() -> PyResult<()> {
    match take_raised() {
        Some(Raised::ByHandler(error)) => Err(error),
        Some(Raised::ByLimit(_)) | None => Ok(()),
    }
}
