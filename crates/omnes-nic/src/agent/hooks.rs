//! Omnes's programs at an interface's tc hook, whichever process attached them.
//!
//! Queries the kernel, so it finds programs of the agent and of processes that load the firmware
//! themselves, and filters that a killed process has left on a kernel without tcx. Needs root.

use crate::attach::{Direction, filter, hook};
use crate::error::checked;
use crate::log;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

/// Names of the firmware's programs.
pub const PROGRAMS: [&str; 2] = ["nic_ingress", "nic_egress"];
/// Maximum number of programs of one hook that are examined; tcx allows no more.
const HOOK_PROGRAMS_MAX: usize = 64;

/// How a program is attached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// By a link, which vanishes with its owner.
    Tcx,
    /// As a filter, which stays until it is removed.
    Clsact,
}

/// A program of the firmware at a hook.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Hooked {
    /// How it is attached.
    pub way: Way,
    /// Its name.
    pub name: String,
    /// The kernel's number for it.
    pub program_id: u32,
    /// The kernel's number for its link.
    pub link_id: Option<u32>,
    /// Processes that hold the link.
    pub owners: Vec<u32>,
}

/// The firmware's programs at both hooks of an interface. `owners` is the result of
/// [`link_owners`].
///
/// # Errors
/// The kernel's error, such as for a user who is not root.
pub fn at(interface: u32, owners: &BTreeMap<u32, Vec<u32>>) -> io::Result<Vec<Hooked>> {
    let mut found = Vec::new();
    for direction in [Direction::Ingress, Direction::Egress] {
        for (program_id, link_id) in tcx(interface, direction)? {
            if let Some(name) = own_name(program_id)? {
                let owners = owners.get(&link_id).cloned().unwrap_or_default();
                let link_id = Some(link_id);
                found.push(Hooked { way: Way::Tcx, name, program_id, link_id, owners });
            }
        }
        if let Some(program_id) = clsact(interface, direction)
            && let Some(name) = own_name(program_id)?
        {
            let (link_id, owners) = (None, Vec::new());
            found.push(Hooked { way: Way::Clsact, name, program_id, link_id, owners });
        }
    }
    Ok(found)
}

/// Numbers of all programs of the firmware in the kernel, attached or not.
///
/// # Errors
/// The kernel's error, such as for a user who is not root.
pub fn programs() -> io::Result<Vec<u32>> {
    let mut found = Vec::new();
    let mut id = 0;
    loop {
        // SAFETY: the call writes one number.
        let code = unsafe { libbpf_sys::bpf_prog_get_next_id(id, &raw mut id) };
        match checked(code) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
            Err(error) => return Err(error),
        }
        found.extend(own_name(id)?.map(|_| id));
    }
}

/// The program that is attached as a filter of Omnes, if any.
fn clsact(interface: u32, direction: Direction) -> Option<u32> {
    let (hook, mut options) = (hook(interface, direction), filter());
    // If no filter exists, the library prints that to stderr unless its messages are captured.
    let (found, _) = log::listening(|| {
        // SAFETY: hook and options are described in full.
        checked(unsafe { libbpf_sys::bpf_tc_query(&raw const hook, &raw mut options) })
    });
    found.ok().map(|_| options.prog_id)
}

/// The name of a program if it is the firmware's; `None` also if the program has gone.
fn own_name(id: u32) -> io::Result<Option<String>> {
    match name_of_program(id) {
        Ok(name) => Ok(PROGRAMS.contains(&name.as_str()).then_some(name)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Program and link of everything that is attached by tcx; nothing if the kernel does not have tcx.
fn tcx(interface: u32, direction: Direction) -> io::Result<Vec<(u32, u32)>> {
    let kind = match direction {
        Direction::Ingress => libbpf_sys::BPF_TCX_INGRESS,
        Direction::Egress => libbpf_sys::BPF_TCX_EGRESS,
    };
    let (mut programs, mut links) = ([0u32; HOOK_PROGRAMS_MAX], [0u32; HOOK_PROGRAMS_MAX]);
    let mut options = libbpf_sys::bpf_prog_query_opts {
        sz: size_of::<libbpf_sys::bpf_prog_query_opts>() as u64,
        prog_ids: programs.as_mut_ptr(),
        link_ids: links.as_mut_ptr(),
        ..Default::default()
    };
    options.__bindgen_anon_1.count = HOOK_PROGRAMS_MAX as u32;
    // SAFETY: the options point to arrays of the length given.
    let code = unsafe { libbpf_sys::bpf_prog_query_opts(interface as i32, kind, &raw mut options) };
    match checked(code) {
        Ok(_) => {}
        // Kernels before 6.6.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return Ok(Vec::new()),
        // Nothing is attached.
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(Vec::new()),
        Err(error) => return Err(error),
    }
    // SAFETY: both members of the union are this number.
    let count = unsafe { options.__bindgen_anon_1.count } as usize;
    Ok(programs.into_iter().zip(links).take(count).collect())
}

fn name_of_program(id: u32) -> io::Result<String> {
    // SAFETY: a system call with a number.
    let program = checked(unsafe { libbpf_sys::bpf_prog_get_fd_by_id(id) })?;
    // SAFETY: a new descriptor that nobody else has.
    let program = unsafe { OwnedFd::from_raw_fd(program) };
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut bytes = size_of_val(&info) as u32;
    // SAFETY: the call writes at most the given number of bytes.
    let code = unsafe {
        libbpf_sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &raw mut info, &raw mut bytes)
    };
    checked(code)?;
    // SAFETY: the kernel terminates the name by 0 within its field.
    let name = unsafe { CStr::from_ptr(info.name.as_ptr()) };
    Ok(name.to_string_lossy().into_owned())
}

/// Which processes hold which link, by the kernel's number of the link, as far as this process may
/// inspect others.
pub fn link_owners() -> BTreeMap<u32, Vec<u32>> {
    let mut owners: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let number = process.file_name().to_str().and_then(|name| name.parse().ok());
        let Some(number) = number else { continue };
        let folder = process.path();
        for file in fs::read_dir(folder.join("fd")).into_iter().flatten().flatten() {
            if !is_link(&file.path()) {
                continue;
            }
            let info = fs::read_to_string(folder.join("fdinfo").join(file.file_name()));
            let Some(link) = info.ok().as_deref().and_then(link_of) else { continue };
            let holders = owners.entry(link).or_default();
            if !holders.contains(&number) {
                holders.push(number);
            }
        }
    }
    owners
}

fn is_link(path: &Path) -> bool {
    let target = fs::read_link(path).unwrap_or_default();
    matches!(target.to_str(), Some("anon_inode:bpf_link" | "anon_inode:bpf-link"))
}

/// The link's number in the kernel's text about a descriptor.
fn link_of(info: &str) -> Option<u32> {
    let line = info.lines().find_map(|line| line.strip_prefix("link_id:"))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_ids_are_parsed_from_kernel_fdinfo() {
        let info = "pos:\t0\nflags:\t02000000\nlink_type:\ttcx\nlink_id:\t17\nprog_id:\t4\n";
        assert_eq!(link_of(info), Some(17));
        assert_eq!(link_of("pos:\t0\n"), None);
        assert_eq!(link_of("link_id:\tx\n"), None);
    }
}
