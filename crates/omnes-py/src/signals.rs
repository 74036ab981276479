//! Python's signal handlers get their turn while a call waits: so Ctrl-C ends the wait, and what a
//! program does when a launcher ends its job is done in time. Limits of time are looked at, too.
//!
//! What a handler raises is kept for the call, which has no other way to it: the wait ends with
//! [`omnes::Error::Interrupted`], and `failure` raises what is kept instead.

use crate::limit;
use omnes::WhileWaiting;
use pyo3::prelude::*;
use std::cell::Cell;
use std::ops::ControlFlow;
use std::time::Duration;

/// Time between two turns of the handlers in a wait: soon enough for who has pressed a key, and too
/// seldom to be felt where other threads hold the interpreter's lock.
pub(crate) const INTERVAL: Duration = Duration::from_millis(50);

thread_local! {
    static RAISED: Cell<Option<PyErr>> = const { Cell::new(None) };
}

/// What calls of this package do while they wait.
pub(crate) fn while_waiting() -> WhileWaiting {
    WhileWaiting::every(INTERVAL, || {
        // What was to end the last wait, which had got what it waited for, ends this one.
        if let Some(raised) = take_raised() {
            keep_raised(Some(raised));
            return ControlFlow::Break(());
        }
        // Without an interpreter, as when it ends, there are no handlers.
        let raised = Python::try_attach(|py| py.check_signals().err()).flatten();
        match raised.or_else(limit::exceeded) {
            Some(error) => {
                keep_raised(Some(error));
                ControlFlow::Break(())
            }
            None => ControlFlow::Continue(()),
        }
    })
}

/// What a handler has raised, or a limit, in the wait of this thread that has just ended.
pub(crate) fn take_raised() -> Option<PyErr> {
    RAISED.take()
}

/// Keeps it for the call that this thread is in.
pub(crate) fn keep_raised(raised: Option<PyErr>) {
    RAISED.set(raised);
}
