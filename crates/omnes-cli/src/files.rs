//! Files that are written at the end of a long computation.

use anyhow::{Context, Result, ensure};
use std::fs::OpenOptions;
use std::path::Path;

/// Rejects a path at which no file can be created, before work is done for it.
pub fn check(path: &Path) -> Result<()> {
    let (shown, folder) = (path.display(), path.parent().unwrap_or(path));
    let is_here = folder.as_os_str().is_empty() || folder.is_dir();
    ensure!(is_here, "cannot write {shown}: no folder {}; make it first", folder.display());
    ensure!(path != Path::new(""), "a file to write has no name; name a file");
    ensure!(!path.is_dir(), "cannot write {shown}: it is a folder; name a file");
    // Opening and closing a pipe or a device would look like a complete output.
    if path.is_file() || !path.exists() {
        let is_new = !path.exists();
        let opened = OpenOptions::new().append(true).create(true).open(path);
        opened.with_context(|| format!("cannot write {shown}"))?;
        if is_new {
            std::fs::remove_file(path).with_context(|| format!("cannot remove {shown}"))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn output_files_need_an_existing_folder() {
        let folder = tempfile::tempdir().unwrap();
        let refused = |path: &Path| check(path).unwrap_err().to_string();
        for path in ["new.svg", "./new.svg", "/dev/null"] {
            check(Path::new(path)).unwrap();
        }
        check(&folder.path().join("new.svg")).unwrap();
        assert!(!folder.path().join("new.svg").exists());
        assert!(refused(Path::new("/proc/new.svg")).contains("cannot write /proc/new.svg"));
        assert!(refused(&folder.path().join("a/b")).contains("no folder"));
        assert!(refused(folder.path()).contains("it is a folder"));
        assert!(refused(Path::new("/")).contains("it is a folder"));
        assert!(refused(Path::new("")).contains("name a file"));
    }
}
