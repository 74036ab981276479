//! Mount points, as the kernel lists them.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// The mount points in a `mountinfo`; see proc_pid_mountinfo(5).
pub fn mount_points(mountinfo: &[u8]) -> impl Iterator<Item = PathBuf> {
    let lines = mountinfo.split(|&byte| byte == b'\n');
    let escaped = lines.filter_map(|line| line.split(|&byte| byte == b' ').nth(4));
    escaped.map(|path| OsString::from_vec(without_escapes(path)).into())
}

/// Decodes spaces, tabs, newlines and backslashes, which are written as a backslash and three octal
/// digits.
fn without_escapes(mut text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    loop {
        let (byte, rest) = match text {
            [] => return plain,
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', rest @ ..] => {
                ((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'), rest)
            }
            [byte, rest @ ..] => (*byte, rest),
        };
        plain.push(byte);
        text = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn escaped_mount_points_are_decoded() {
        let mountinfo = b"22 1 0:5 / /proc rw shared:2 - proc proc rw\n\
            98 22 8:1 /x /a\\040b\\134c\\0 rw - ext4 /dev/sda1 rw\n";
        let points: Vec<_> = mount_points(mountinfo).collect();
        assert_eq!(points, [Path::new("/proc"), Path::new("/a b\\c\\0")]);
    }
}
