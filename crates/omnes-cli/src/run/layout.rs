//! Whether the memory layout of the ranks is random (ASLR).
//!
//! A processor predicts branches by their addresses. Ranks that share a core run the same program,
//! but at random addresses each has to train the core's predictions anew in its turn: a third of a
//! barrier of 16 ranks on two cores (`docs/LESSONS.md`). Hosts of a lab share cores, which the
//! hosts of a cluster do not, so in labs all ranks have the same layout unless requested otherwise.

use super::placement::Site;
use crate::lab::Switch;
use anyhow::{Context, Result};
use libc::{ADDR_NO_RANDOMIZE, c_ulong};
use std::io::{Error, Result as IoResult};

/// Argument of `personality` that queries without a change.
const ASK: c_ulong = 0xffff_ffff;

/// Sets the memory layout of the ranks on this machine, which the calling thread will start, to
/// `wanted`, or to the default for `site`.
///
/// # Errors
/// The kernel refuses the `wanted` layout. Refusing a lab's default is not an error: ranks are
/// slower.
pub fn choose(wanted: Option<Switch>, site: &Site) -> Result<()> {
    match (wanted, site) {
        (Some(Switch::On), _) => randomize(true).context("--aslr on: the kernel refuses"),
        (Some(Switch::Off), _) => randomize(false).context(
            "--aslr off: the kernel refuses; in a container, allow the system call 'personality'",
        ),
        (None, Site::Lab(_)) => {
            let _ = randomize(false);
            Ok(())
        }
        (None, Site::Here { .. } | Site::Ssh { .. }) => Ok(()),
    }
}

/// Sets the layout of programs that this thread starts from now on.
fn randomize(is_random: bool) -> IoResult<()> {
    let now = personality(ASK)?;
    let fixed = ADDR_NO_RANDOMIZE as c_ulong;
    let then = if is_random { now & !fixed } else { now | fixed };
    if then != now {
        personality(then)?;
    }
    Ok(())
}

/// Returns the personality before the call.
fn personality(then: c_ulong) -> IoResult<c_ulong> {
    // SAFETY: takes no pointers.
    let before = unsafe { libc::personality(then) };
    c_ulong::try_from(before).map_err(|_| Error::last_os_error())
}
