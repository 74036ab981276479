//! Attaching programs to an interface's tc hook.
//!
//! tcx (kernel 6.6) where it is: several programs may share a hook, and a link vanishes with the
//! last descriptor of it. Below, clsact filters.

use crate::error::{NicError, checked};
use crate::log;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Which way packets go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From the wire.
    Ingress,
    /// To the wire.
    Egress,
}

/// A program at a hook; goes when it is dropped.
pub enum Attachment {
    /// Held by its descriptor.
    Tcx(OwnedFd),
    /// A filter that has to be removed.
    Clsact {
        /// The interface it is at.
        interface: u32,
        /// Which way.
        direction: Direction,
    },
}

/// Handle and priority by which clsact filters of Omnes are known.
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
        // What kernels before 6.6 say.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            let attached = clsact(program, interface, direction);
            attached.map(|()| Attachment::Clsact { interface, direction })
        }
        Err(error) => Err(error),
    }
    .map_err(|source| NicError::Attach { interface, source })
}

/// Removes clsact filters of Omnes that a process which was killed has left at an interface; how
/// many there were. Filters of others stay, and so does their qdisc.
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

fn clsact(program: BorrowedFd<'_>, interface: u32, direction: Direction) -> std::io::Result<()> {
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
    checked(unsafe { libbpf_sys::bpf_tc_attach(&raw const hook, &raw mut options) }).map(drop)
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
        if let Self::Clsact { interface, direction } = self {
            // The interface may be gone already.
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

    /// Loopback is the first interface of every network namespace.
    const LOOPBACK: u32 = 1;

    /// Identity of the program that is attached as a filter, if there is one.
    fn attached(direction: Direction) -> Option<u32> {
        let (hook, mut options) = (hook(LOOPBACK, direction), filter());
        // SAFETY: hook and options are described in full.
        let code = unsafe { libbpf_sys::bpf_tc_query(&raw const hook, &raw mut options) };
        (code == 0).then_some(options.prog_id)
    }

    /// Runs `body` in a network namespace of its own; not without root.
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
    fn clsact_filters_go_with_their_attachment_or_are_swept() {
        in_namespace(|| {
            let kernel = Kernel::load().unwrap();
            for direction in [Direction::Ingress, Direction::Egress] {
                let program = kernel.program("nic_ingress");
                let attach = || {
                    clsact(program, LOOPBACK, direction).unwrap();
                    Attachment::Clsact { interface: LOOPBACK, direction }
                };
                assert_eq!(attached(direction), None);
                let attachment = attach();
                assert!(attached(direction).is_some());
                let again = clsact(program, LOOPBACK, direction);
                assert_eq!(again.unwrap_err().raw_os_error(), Some(libc::EEXIST));
                drop(attachment);
                assert_eq!(attached(direction), None);
                // As if the process had been killed.
                std::mem::forget(attach());
                assert_eq!(sweep(LOOPBACK), 1);
                assert_eq!(attached(direction), None);
                assert_eq!(sweep(LOOPBACK), 0);
            }
        });
    }

    #[test]
    fn an_interface_that_does_not_exist_is_named() {
        in_namespace(|| {
            let mut kernel = Kernel::load().unwrap();
            let refused = kernel.attach(77).unwrap_err();
            assert!(matches!(refused, NicError::Attach { interface: 77, .. }), "{refused}");
        });
    }
}
