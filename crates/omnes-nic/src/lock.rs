//! Locks whose holders leave nothing half done: after a panic elsewhere they go on.

use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
