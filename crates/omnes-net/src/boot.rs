//! The boot id: the kernel's random name for its current boot, valid on one machine only.

/// Boot id of the machine, the same for all its processes and containers; `None` if the kernel does
/// not provide it.
pub fn boot_id() -> Option<[u8; 16]> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let digits = text.trim().replace('-', "");
    u128::from_str_radix(&digits, 16).ok().map(u128::to_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boot_id_is_available_and_stable() {
        assert!(boot_id().is_some());
        assert_eq!(boot_id(), boot_id());
    }
}
