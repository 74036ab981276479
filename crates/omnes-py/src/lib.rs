//! The compiled part of the Python package: `omnes._omnes`.
//!
//! | module | what it is |
//! | --- | --- |
//! | `communicator` | the class `Communicator`: how it is created, split and left |
//! | `messages`, `collectives`, `started` | its messages, and its collectives, blocking and not |
//! | `exchange` | communicators made through an exchange, and the end of their jobs |
//! | `request` | the class `Request`: nonblocking operations, with the memory that they use |
//! | `memory` | objects with a buffer, as bytes usable without the interpreter's lock |
//! | `process` | values that a forked child must neither use nor end |
//! | `failure` | an exception per kind of error |
//! | `limit` | time limits for calls that wait |
//! | `signals` | Python's signal handlers while a call waits |
//!
//! Every call that may wait releases the interpreter's lock. The interface to Python is described
//! in `python/omnes/_omnes.pyi`; a test compares the two, including the docstrings that `help()`
//! shows.

mod collectives;
mod communicator;
mod exchange;
mod failure;
mod limit;
mod memory;
mod messages;
mod process;
mod request;
mod signals;
mod started;

use pyo3::prelude::*;

/// The compiled part of the package; use it as ``omnes``.
#[pymodule]
fn _omnes(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<communicator::Communicator>()?;
    module.add_class::<request::Request>()?;
    module.add_class::<limit::TimeLimit>()?;
    module.add_function(wrap_pyfunction!(exchange::join, module)?)?;
    module.add_function(wrap_pyfunction!(exchange::leave, module)?)?;
    module.add_function(wrap_pyfunction!(exchange::abandon, module)?)?;
    failure::add_to(module)
}
