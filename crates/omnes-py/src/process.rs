//! What belongs to one process: a child that was forked has a copy of it, whose end must not take
//! the parent out of its job.

use std::mem::ManuallyDrop;

/// A value that is dropped only in the process that made it.
pub(crate) struct OfProcess<T> {
    value: ManuallyDrop<T>,
    process: u32,
}

impl<T> OfProcess<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: ManuallyDrop::new(value), process: std::process::id() }
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        &mut self.value
    }

    pub(crate) fn get(&self) -> &T {
        &self.value
    }

    /// The value; nothing in another process.
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
            // SAFETY: this is the only place that drops it, once; `into_inner` does not come here.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}
