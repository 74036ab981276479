//! Values that belong to one process: a forked child has a copy, which it must neither use nor end,
//! since that would remove the parent from its job.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU32, Ordering};

/// The process that has joined a job from Python; 0 for none. A forked child inherits the value.
static JOINED: AtomicU32 = AtomicU32::new(0);

/// Records that this process has joined a job.
pub(crate) fn note_joined() {
    JOINED.store(std::process::id(), Ordering::Relaxed);
}

/// True in the forked child of a process that had joined a job.
pub(crate) fn is_child_of_joined() -> bool {
    ![0, std::process::id()].contains(&JOINED.load(Ordering::Relaxed))
}

/// Rejects joining a job in the place of the parent.
///
/// # Errors
/// `ValueError` in the forked child of a process that had joined a job.
pub(crate) fn check_may_join() -> PyResult<()> {
    if is_child_of_joined() {
        let reason = "the process that this one was forked from has joined its job: let that \
                      communicate, or start this one by itself, as multiprocessing can by \
                      \"spawn\"";
        return Err(PyValueError::new_err(reason));
    }
    Ok(())
}

/// A value that is used and dropped only in the process that made it.
pub(crate) struct OfProcess<T> {
    value: ManuallyDrop<T>,
    process: u32,
}

impl<T> OfProcess<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: ManuallyDrop::new(value), process: std::process::id() }
    }

    /// The value; `None` in another process.
    pub(crate) fn get(&self) -> Option<&T> {
        self.is_here().then_some(&*self.value)
    }

    /// As [`Self::get`].
    pub(crate) fn into_inner(self) -> Option<T> {
        let mut own = ManuallyDrop::new(self);
        // SAFETY: `own` is neither used nor dropped afterwards.
        own.is_here().then(|| unsafe { ManuallyDrop::take(&mut own.value) })
    }

    fn is_here(&self) -> bool {
        self.process == std::process::id()
    }
}

impl<T> Drop for OfProcess<T> {
    fn drop(&mut self) {
        if self.is_here() {
            // SAFETY: nothing else drops the value; `into_inner` does not get here.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}
