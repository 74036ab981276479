//! Names of the entries of a copy, and of its destinations.
//!
//! A name in a stream is one component of a path, so no stream can name anything outside of its
//! destination. A destination is a path in which `{rank}` stands for the rank's number and `{{` for
//! a brace; any other opening brace is an error. A destination that ends in `/` is a directory to
//! copy into, as with `cp`.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Placeholder for the rank's number in a destination.
pub const RANK_PLACE: &str = "{rank}";

/// Longest component that Linux file systems accept.
const COMPONENT_BYTES_MAX: usize = 255;

/// Reason why a name in a stream is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// An empty name, `.` or `..`.
    #[error("`{0}` is not the name of an entry")]
    NotAnEntry(String),
    /// The name contains `/` or a zero byte.
    #[error("`{0}` is a path or no name at all")]
    NotOneComponent(String),
    /// No file system accepts the name.
    #[error("a name has {0} bytes")]
    TooLong(usize),
}

/// Rejects a name that is not the name of an entry in a directory.
pub fn check_component(name: &[u8]) -> Result<(), NameError> {
    let shown = || String::from_utf8_lossy(name).into_owned();
    match name {
        b"" | b"." | b".." => Err(NameError::NotAnEntry(shown())),
        _ if name.contains(&b'/') || name.contains(&0) => Err(NameError::NotOneComponent(shown())),
        _ if name.len() > COMPONENT_BYTES_MAX => Err(NameError::TooLong(name.len())),
        _ => Ok(()),
    }
}

/// Element of a destination as typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece {
    Rank,
    Byte(u8),
}

/// Splits a destination; errors with a sentence for an unknown placeholder.
fn pieces(dest: &Path) -> Result<Vec<Piece>, String> {
    let mut rest = dest.as_os_str().as_bytes();
    let mut pieces = Vec::new();
    while let Some((&byte, after)) = rest.split_first() {
        let (piece, behind) = if let Some(behind) = rest.strip_prefix(RANK_PLACE.as_bytes()) {
            (Piece::Rank, behind)
        } else if let Some(behind) = rest.strip_prefix(b"{{") {
            (Piece::Byte(b'{'), behind)
        } else if byte == b'{' {
            return Err(unknown(dest, rest));
        } else {
            (Piece::Byte(byte), after)
        };
        pieces.push(piece);
        rest = behind;
    }
    Ok(pieces)
}

/// Error for an unknown placeholder; `rest` starts with its opening brace.
fn unknown(dest: &Path, rest: &[u8]) -> String {
    let end = rest.iter().position(|&byte| byte == b'}');
    let what = match end {
        Some(end) => format!("`{}` stands for nothing", String::from_utf8_lossy(&rest[..=end])),
        None => format!("`{}` has no closing brace", String::from_utf8_lossy(rest)),
    };
    let dest = dest.display();
    format!("{dest}: {what}; known is {RANK_PLACE}, the rank's number, and {{{{ is a brace itself")
}

/// True if every rank has a destination of its own.
pub fn names_rank(dest: &Path) -> bool {
    pieces(dest).is_ok_and(|pieces| pieces.contains(&Piece::Rank))
}

/// Path that `rank` writes to: `dest` with the rank's number filled in, and with the name of
/// `source` appended if `dest` is a directory to copy into.
///
/// Errors with a sentence if there is no such name.
pub fn destination(dest: &Path, source: &Path, rank: u32) -> Result<PathBuf, String> {
    let number = rank.to_string();
    let mut path = Vec::new();
    for piece in pieces(dest)? {
        match piece {
            Piece::Rank => path.extend(number.as_bytes()),
            Piece::Byte(byte) => path.push(byte),
        }
    }
    let is_into = path.ends_with(b"/");
    let mut path = PathBuf::from(OsString::from_vec(path));
    if is_into {
        path.push(source.file_name().ok_or_else(|| {
            format!("{}: the source has no name of its own; name the copy", source.display())
        })?);
    }
    // The standard library returns `a` as the file name of `a/.`.
    if path.file_name().is_none() || path.as_os_str().as_bytes().ends_with(b"/.") {
        return Err(format!("{}: a copy needs a name at its end", path.display()));
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_single_path_components_are_accepted() {
        for name in [&b"a"[..], b"...", b"..a", b".hidden", b"a b", b"\xff\xfe", b"{rank}", b"-rf"]
        {
            assert_eq!(check_component(name), Ok(()), "{name:?}");
        }
        assert_eq!(check_component(&[b'a'; 255]), Ok(()));
        assert_eq!(check_component(&[b'a'; 256]), Err(NameError::TooLong(256)));
        for name in [&b""[..], b".", b".."] {
            assert!(matches!(check_component(name), Err(NameError::NotAnEntry(_))), "{name:?}");
        }
        for name in [&b"/"[..], b"/etc/passwd", b"a/..", b"../a", b"a/", b"a\0"] {
            let checked = check_component(name);
            assert!(matches!(checked, Err(NameError::NotOneComponent(_))), "{name:?}");
        }
    }

    #[test]
    fn rank_placeholder_is_replaced_everywhere() {
        let to = |dest: &str| destination(Path::new(dest), Path::new("dir/model.bin"), 12);
        assert_eq!(to("out/{rank}/x").unwrap(), Path::new("out/12/x"));
        assert_eq!(to("{rank}-{rank}").unwrap(), Path::new("12-12"));
        assert_eq!(to("{{rank}-}").unwrap(), Path::new("{rank}-}"));
        assert!(!names_rank(Path::new("{{rank}")));
        assert!(names_rank(Path::new("a/{rank}/b")) && !names_rank(Path::new("a/rank")));
    }

    #[test]
    fn unknown_placeholder_error_lists_the_known_ones() {
        let refused = |dest: &str| destination(Path::new(dest), Path::new("f"), 1).unwrap_err();
        let expected = "out/{RANK}/f: `{RANK}` stands for nothing; known is {rank}, the rank's \
                        number, and {{ is a brace itself";
        assert_eq!(refused("out/{RANK}/f"), expected);
        assert!(refused("out/{rank").contains("`{rank` has no closing brace"));
        assert!(refused("{}").contains("`{}` stands for nothing"));
    }

    #[test]
    fn trailing_slash_copies_into_the_directory() {
        let to = |dest: &str, source: &str| destination(Path::new(dest), Path::new(source), 3);
        assert_eq!(to("out/{rank}/", "dir/model.bin").unwrap(), Path::new("out/3/model.bin"));
        assert_eq!(to("out", "dir/").unwrap(), Path::new("out"));
        assert_eq!(to("out/", "dir/").unwrap(), Path::new("out/dir"));
        assert!(to("out/", "/").unwrap_err().contains("no name of its own"));
        assert!(to("..", "dir").unwrap_err().contains("needs a name"));
        assert!(to("out/.", "dir").unwrap_err().contains("needs a name"));
    }
}
