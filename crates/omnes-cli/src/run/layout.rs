//! Whether the memory of the ranks is laid out at random (ASLR).
//!
//! A processor remembers where branches went by their addresses. Ranks that share a core run the
//! same program, but at random addresses each has to teach the core its branches anew when it gets
//! its turn: a third of a barrier of 16 ranks on two cores (`docs/LESSONS.md`). Hosts of a lab
//! share cores that the hosts of a cluster do not, so there the layout is the same for all unless
//! asked for otherwise.

use super::placement::Site;
use crate::lab::Switch;
use anyhow::{Context, Result};
use libc::{ADDR_NO_RANDOMIZE, c_ulong};
use std::io::{Error, Result as IoResult};

/// What `personality` takes for "tell, and change nothing".
const ASK: c_ulong = 0xffff_ffff;

/// Lets the ranks on this machine, which the calling thread is to start, have their memory laid out
/// as `wanted`, or as suits `site`.
///
/// # Errors
/// The kernel refuses what was wanted. That a lab's default is refused is none: ranks are slower.
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

/// Sets what programs get that this thread starts from now on.
fn randomize(is_random: bool) -> IoResult<()> {
    let now = personality(ASK)?;
    let fixed = ADDR_NO_RANDOMIZE as c_ulong;
    let then = if is_random { now & !fixed } else { now | fixed };
    if then != now {
        personality(then)?;
    }
    Ok(())
}

/// The personality before the call.
fn personality(then: c_ulong) -> IoResult<c_ulong> {
    // SAFETY: takes no memory.
    let before = unsafe { libc::personality(then) };
    c_ulong::try_from(before).map_err(|_| Error::last_os_error())
}
