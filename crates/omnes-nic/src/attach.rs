//! Attaching programs to an interface's tc hook.
//!
//! tcx if the kernel has it (6.6): several programs may share a hook, and a link vanishes with its
//! last descriptor. Otherwise clsact filters.

use crate::error::{NicError, checked};
use crate::log;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Direction of packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From the wire.
    Ingress,
    /// To the wire.
    Egress,
}

/// A program attached to a hook; detached when dropped.
pub enum Attachment {
    /// Held by its descriptor.
    Tcx(OwnedFd),
    /// A filter, which must be removed.
    Clsact {
        /// The interface.
        interface: u32,
        /// The direction.
        direction: Direction,
        /// The program's identity: the filter may since have been replaced by another program's.
        program: u32,
    },
}

/// Handle and priority that identify clsact filters of Omnes.
const CLSACT_HANDLE: u32 = 0x4f6d;
const CLSACT_PRIORITY: u32 = 1;

/// Attaches `program` to `interface`.
///
/// # Errors
/// [`NicError::Attach`].
pub fn attach(
    program: BorrowedFd<'_>,
    interface: u32,
    direction: Direction,
) -> Result<Attachment, NicError> {
    match tcx(program, interface, direction) {
        Ok(link) => Ok(Attachment::Tcx(link)),
        // The error of kernels before 6.6.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            let attached = clsact(program, interface, direction);
            attached.map(|program| Attachment::Clsact { interface, direction, program })
        }
        Err(error) => Err(error),
    }
    .map_err(|source| NicError::Attach { interface, source })
}

/// Removes clsact filters of Omnes that a killed process has left at an interface; returns their
/// number. Filters of others stay, and so does their qdisc.
pub fn sweep(interface: u32) -> u32 {
    let directions = [Direction::Ingress, Direction::Egress];
    directions.into_iter().filter(|direction| detach(interface, *direction).is_ok()).count() as u32
}

fn tcx(program: BorrowedFd<'_>, interface: u32, direction: Direction) -> std::io::Result<OwnedFd> {
    let kind = match direction {
        Direction::Ingress => libbpf_sys::BPF_TCX_INGRESS,
        Direction::Egress => libbpf_sys::BPF_TCX_EGRESS,
    };
    let (program, interface) = (program.as_raw_fd(), interface as i32);
    // SAFETY: a system call with numbers and no options.
    let link = unsafe { libbpf_sys::bpf_link_create(program, interface, kind, std::ptr::null()) };
    let link = checked(link)?;
    // SAFETY: a new descriptor that nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(link) })
}

/// Attaches a clsact filter; returns the program's identity.
fn clsact(program: BorrowedFd<'_>, interface: u32, direction: Direction) -> std::io::Result<u32> {
    let mut hook = hook(interface, direction);
    // SAFETY: the hook is described in full; it is there already if others use it.
    let created = checked(unsafe { libbpf_sys::bpf_tc_hook_create(&raw mut hook) });
    match created {
        Err(error) if error.raw_os_error() != Some(libc::EEXIST) => return Err(error),
        _ => {}
    }
    let mut options = filter();
    options.prog_fd = program.as_raw_fd();
    // SAFETY: hook and options are described in full.
    checked(unsafe { libbpf_sys::bpf_tc_attach(&raw const hook, &raw mut options) })?;
    Ok(options.prog_id)
}

/// Identity of the program that is attached as a filter of Omnes, if any.
fn attached(interface: u32, direction: Direction) -> Option<u32> {
    let (hook, mut options) = (hook(interface, direction), filter());
    // SAFETY: hook and options are described in full.
    let code = unsafe { libbpf_sys::bpf_tc_query(&raw const hook, &raw mut options) };
    (code == 0).then_some(options.prog_id)
}

fn detach(interface: u32, direction: Direction) -> std::io::Result<()> {
    let (hook, options) = (hook(interface, direction), filter());
    // SAFETY: hook and options are described in full.
    checked(unsafe { libbpf_sys::bpf_tc_detach(&raw const hook, &raw const options) }).map(drop)
}

pub(crate) fn hook(interface: u32, direction: Direction) -> libbpf_sys::bpf_tc_hook {
    log::silence();
    libbpf_sys::bpf_tc_hook {
        sz: size_of::<libbpf_sys::bpf_tc_hook>() as u64,
        ifindex: interface as i32,
        attach_point: match direction {
            Direction::Ingress => libbpf_sys::BPF_TC_INGRESS,
            Direction::Egress => libbpf_sys::BPF_TC_EGRESS,
        },
        ..Default::default()
    }
}

pub(crate) fn filter() -> libbpf_sys::bpf_tc_opts {
    libbpf_sys::bpf_tc_opts {
        sz: size_of::<libbpf_sys::bpf_tc_opts>() as u64,
        handle: CLSACT_HANDLE,
        priority: CLSACT_PRIORITY,
        ..Default::default()
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        let Self::Clsact { interface, direction, program } = self else { return };
        if attached(*interface, *direction) == Some(*program) {
            // The interface may no longer exist.
            let _ = detach(*interface, *direction);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::Kernel;
    use crate::root::is_root;
    use std::collections::BTreeMap;

    /// Loopback is the first interface of every network namespace.
    const LOOPBACK: u32 = 1;

    /// Runs `body` in a network namespace of its own; skipped without root.
    fn in_namespace(body: impl FnOnce() + Send) {
        if !is_root() {
            return;
        }
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                // SAFETY: affects this thread only, which ends here.
                assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0);
                body();
            });
            thread.join().unwrap();
        });
    }

    #[test]
    fn clsact_filters_are_removed_on_drop_or_by_the_sweep() {
        in_namespace(|| {
            let kernels = [Kernel::load().unwrap(), Kernel::load().unwrap()];
            for direction in [Direction::Ingress, Direction::Egress] {
                let attached = || super::attached(LOOPBACK, direction);
                let attach = |kernel: &Kernel| {
                    let program = clsact(kernel.program("nic_ingress"), LOOPBACK, direction)?;
                    Ok(Attachment::Clsact { interface: LOOPBACK, direction, program })
                };
                let refused = |error: std::io::Error| error.raw_os_error();
                assert_eq!(attached(), None);
                let attachment = attach(&kernels[0]).unwrap();
                assert!(attached().is_some());
                assert_eq!(attach(&kernels[1]).err().and_then(refused), Some(libc::EEXIST));
                drop(attachment);
                assert_eq!(attached(), None);
                // As if the process had been killed.
                std::mem::forget(attach(&kernels[0]).unwrap());
                assert_eq!(sweep(LOOPBACK), 1);
                assert_eq!(attached(), None);
                assert_eq!(sweep(LOOPBACK), 0);
                // An attachment whose filter was removed by hand leaves the next one alone.
                let removed = attach(&kernels[0]).unwrap();
                assert_eq!(sweep(LOOPBACK), 1);
                let next = attach(&kernels[1]).unwrap();
                let program = attached();
                assert!(program.is_some());
                drop(removed);
                assert_eq!(attached(), program);
                drop(next);
                assert_eq!(attached(), None);
            }
        });
    }

    #[test]
    fn repeated_attach_hooks_an_interface_once() {
        in_namespace(|| {
            let kernel = Kernel::load().unwrap();
            let hooked = || crate::agent::hooks::at(LOOPBACK, &BTreeMap::new()).unwrap().len();
            for _ in 0..2 {
                kernel.attach(LOOPBACK).unwrap();
                assert_eq!(hooked(), 2, "one each way");
            }
            kernel.detach(LOOPBACK);
            assert_eq!(hooked(), 0);
        });
    }

    #[test]
    fn missing_interface_is_named_in_the_attach_error() {
        in_namespace(|| {
            let kernel = Kernel::load().unwrap();
            let refused = kernel.attach(77).unwrap_err();
            assert!(matches!(refused, NicError::Attach { interface: 77, .. }), "{refused}");
        });
    }
}
