//! Properties that are looked up, not tested: cores, kernel, capabilities, tools.

use super::{Finding, read_number};
use std::path::Path;

/// First kernel with tcx links, which vanish with their owner.
const TCX_KERNEL: (u32, u32) = (6, 6);
/// First kernel with UDP_GRO, the most recent socket option that Omnes can use.
const UDP_GRO_KERNEL: (u32, u32) = (5, 0);

/// Bits of the capability sets in `/proc/self/status`, from `linux/capability.h`.
const CAP_NET_ADMIN: u32 = 12;
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// Tools that parts of Omnes start, their purpose, and the Debian package.
const TOOLS: [(&str, &[&str], &str); 3] = [
    ("iproute2", &["ip", "tc", "bridge"], "for `omnes lab`: apt-get install iproute2"),
    ("clang", &["clang"], "to build the firmware: apt-get install clang"),
    ("ssh", &["ssh"], "for `omnes run --hosts`: apt-get install openssh-client"),
];

/// Findings about the machine.
pub fn findings() -> Vec<Finding> {
    let release = kernel_release();
    let capabilities = effective_capabilities();
    let mut findings = vec![cores(), kernel(&release), autogroup()];
    findings.extend(capability_findings(capabilities));
    findings.push(unprivileged_bpf(capabilities));
    findings.push(tcx(&release));
    findings.extend(tools());
    findings
}

fn cores() -> Finding {
    match std::thread::available_parallelism() {
        Ok(cores) if cores.get() > 1 => Finding::ok("cores", cores),
        Ok(cores) => Finding::limited("cores", cores, "ranks block instead of spinning"),
        Err(error) => Finding::limited("cores", error, "Omnes assumes one core"),
    }
}

fn kernel_release() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}

/// Parses `6.18.44-custom` as `(6, 18)`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|character: char| !character.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn kernel(release: &str) -> Finding {
    match version(release) {
        Some(version) if version >= UDP_GRO_KERNEL => Finding::ok("kernel", release),
        Some(_) => Finding::limited("kernel", release, "5.0 or later has UDP GRO"),
        None => Finding::limited("kernel", release, "version not understood"),
    }
}

fn tcx(release: &str) -> Finding {
    match version(release) {
        Some(version) if version >= TCX_KERNEL => Finding::ok("tcx (kernel >= 6.6)", "yes"),
        _ => Finding::limited(
            "tcx (kernel >= 6.6)",
            "no",
            "clsact is used: its filters stay behind when their owner is killed",
        ),
    }
}

fn autogroup() -> Finding {
    match read_number("/proc/sys/kernel/sched_autogroup_enabled") {
        Some(0) | None => Finding::ok("autogroup", "off"),
        Some(_) => {
            let advice = "keep the ranks in one session, as omnes run does: sessions share cores \
                          evenly, whatever they hold";
            Finding { advice: advice.to_owned(), ..Finding::ok("autogroup", "on") }
        }
    }
}

fn effective_capabilities() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0)
}

fn has(capabilities: u64, bit: u32) -> bool {
    capabilities >> bit & 1 == 1
}

fn capability_findings(capabilities: u64) -> Vec<Finding> {
    let nic = "only to load the kernel NIC without the agent: see NIC of a job";
    let list = [
        ("CAP_NET_ADMIN", CAP_NET_ADMIN, nic),
        ("CAP_BPF", CAP_BPF, nic),
        ("CAP_PERFMON", CAP_PERFMON, nic),
        ("CAP_SYS_ADMIN", CAP_SYS_ADMIN, "only `omnes lab` needs it: run that as root"),
    ];
    list.into_iter()
        .map(|(name, bit, advice)| {
            if has(capabilities, bit) {
                Finding::ok(name, "yes")
            } else if matches!(bit, CAP_BPF | CAP_PERFMON) && has(capabilities, CAP_SYS_ADMIN) {
                Finding::ok(name, "by CAP_SYS_ADMIN")
            } else {
                Finding::missing(name, "no", advice)
            }
        })
        .collect()
}

fn unprivileged_bpf(capabilities: u64) -> Finding {
    let name = "unprivileged_bpf_disabled";
    let may_load = has(capabilities, CAP_BPF) || has(capabilities, CAP_SYS_ADMIN);
    match read_number("/proc/sys/kernel/unprivileged_bpf_disabled") {
        None => Finding::missing(name, "no such setting", "this kernel may have no BPF at all"),
        Some(value) if value == 0 || may_load => Finding::ok(name, value),
        Some(value) => {
            Finding::limited(name, value, "usual; the kernel NIC then needs CAP_BPF or omnesd")
        }
    }
}

fn tools() -> Vec<Finding> {
    let find = |tool: &&str| -> bool {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|folder| is_executable(&folder.join(tool)))
    };
    TOOLS
        .iter()
        .map(|(name, parts, advice)| {
            let absent: Vec<&str> = parts.iter().copied().filter(|tool| !find(tool)).collect();
            if absent.is_empty() {
                Finding::ok(*name, "found")
            } else {
                Finding::missing(*name, format!("no {}", absent.join(", ")), advice)
            }
        })
        .collect()
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_releases_are_compared_numerically() {
        assert_eq!(version("6.18.44-fc"), Some((6, 18)));
        assert_eq!(version("5.10"), Some((5, 10)));
        assert_eq!(version("unknown"), None);
        assert_eq!(tcx("6.5.0").verdict, super::super::Verdict::Limited);
        assert_eq!(tcx("6.6.0").verdict, super::super::Verdict::Ok);
    }

    #[test]
    fn cap_sys_admin_implies_cap_bpf_but_not_cap_net_admin() {
        let findings = capability_findings(1 << CAP_SYS_ADMIN);
        let values: Vec<_> = findings.iter().map(|finding| &*finding.value).collect();
        assert_eq!(values, ["no", "by CAP_SYS_ADMIN", "by CAP_SYS_ADMIN", "yes"]);
    }
}
