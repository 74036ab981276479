//! Locks whose holders leave nothing half done: they stay usable after a panic elsewhere.

use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
