//! Python's signal handlers run while a call waits: Ctrl-C ends the wait, and a program reacts in
//! time when a launcher ends its job. Time limits are checked, too.
//!
//! An exception that a handler raises is stored for the call, since the handler cannot return it
//! otherwise: the wait ends with [`omnes::Error::Interrupted`], and `failure` raises the stored
//! exception instead. An operation that ends nevertheless, for example while the handler runs, has
//! succeeded: the exception of a limit is then not raised, but that of a handler is, since it must
//! reach the program immediately.

use crate::limit;
use omnes::WhileWaiting;
use pyo3::prelude::*;
use std::cell::Cell;
use std::ops::ControlFlow;
use std::thread::LocalKey;
use std::time::Duration;

/// Interval at which handlers run in a wait: short enough for a user who has pressed a key, and
/// long enough not to be noticed when other threads hold the interpreter's lock.
pub(crate) const INTERVAL: Duration = Duration::from_millis(50);

/// The exception that has ended a wait.
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

    /// True while this thread drops a value that waits for its end.
    static LETS_GO: Cell<bool> = const { Cell::new(false) };
}

/// The function that calls of this package run while they wait.
pub(crate) fn while_waiting() -> WhileWaiting {
    WhileWaiting::every(INTERVAL, || {
        if LETS_GO.get() {
            return ControlFlow::Continue(());
        }
        let earlier = take_raised();
        // Without an interpreter, as while it shuts down, there are no handlers.
        let by_handler = Python::try_attach(|py| py.check_signals().err()).flatten();
        let raised = by_handler.map(Raised::ByHandler);
        let raised = raised.or_else(|| limit::exceeded().map(Raised::ByLimit));
        // An exception that was to end an earlier wait of the call, which completed nevertheless,
        // ends this one. But leaving a job waits for the outstanding acknowledgements, even if its
        // barrier was ended.
        let is_over = raised.is_some() || (earlier.is_some() && !LEAVES.get());
        // Even if there is none: the handler may have stored one, through a value that it has
        // dropped.
        keep_raised(match earlier {
            Some(Raised::ByHandler(_)) => earlier,
            Some(Raised::ByLimit(_)) | None => raised.or(earlier),
        });
        if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
}

/// Sets a flag of this thread until it is dropped.
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

/// Runs `leave`, which leaves a job.
pub(crate) fn leaving<T>(leave: impl FnOnce() -> T) -> T {
    let _during = During::new(&LEAVES);
    leave()
}

/// Drops a value that may wait for its end, while other threads continue. Dropping cannot raise an
/// exception, so the interpreter runs the handlers afterwards.
pub(crate) fn let_go<T: Send>(value: T) {
    Python::attach(|py| {
        py.detach(|| {
            let _during = During::new(&LETS_GO);
            drop(value);
        });
    });
}

/// Takes the exception of a handler or a limit from the waits of this thread's last call.
pub(crate) fn take_raised() -> Option<Raised> {
    RAISED.take()
}

/// Stores an exception for the call that this thread is in.
pub(crate) fn keep_raised(raised: Option<Raised>) {
    RAISED.set(raised);
}

/// Before a call: discards an exception left by an earlier drop, which cannot raise it.
pub(crate) fn forget_raised() {
    drop(take_raised());
}

/// After an operation that has succeeded: raises the exception of a handler. That of a limit no
/// longer applies.
pub(crate) fn raise_by_handler() -> PyResult<()> {
    match take_raised() {
        Some(Raised::ByHandler(error)) => Err(error),
        Some(Raised::ByLimit(_)) | None => Ok(()),
    }
}
