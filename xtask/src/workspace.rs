//! The workspace as the chores see it: its packages according to cargo, and its text files.

use anyhow::{Context, bail};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Folders whose content is generated or is data.
const FOLDERS_LEFT_OUT: [&str; 5] = ["target", "corpus", "artifacts", "__pycache__", "build"];
/// Folders with a leading dot that contain our text nevertheless.
const DOT_FOLDERS: [&str; 3] = [".ci", ".cargo", ".github"];
const EXTENSIONS: [&str; 8] = ["rs", "c", "h", "py", "pyi", "sh", "toml", "md"];
const NAMES: [&str; 2] = ["Makefile", ".ci/run"];

/// The packages and text files of the workspace.
pub struct Workspace {
    /// Folder of the workspace's Cargo.toml.
    pub root: PathBuf,
    /// Members of the workspace; fuzz/ is not a member.
    pub packages: Vec<Package>,
    /// Every text file that people write, ascending by path.
    pub files: Vec<TextFile>,
}

/// One member of the workspace.
pub struct Package {
    /// Name, as in its Cargo.toml.
    pub name: String,
    /// Its folder, relative to the root.
    pub folder: String,
    /// Root file of each target, relative to the workspace's root.
    pub targets: Vec<String>,
    /// Dependencies, inside and outside of the workspace.
    pub dependencies: Vec<Dependency>,
}

/// One line of a package's dependency tables.
pub struct Dependency {
    /// Name of the package, even if it is renamed.
    pub name: String,
    /// True in `[dev-dependencies]`; false in the other tables, including that of build scripts.
    pub only_tests: bool,
}

/// One text file.
pub struct TextFile {
    /// Path relative to the root, with `/`.
    pub path: String,
    /// Its content.
    pub text: String,
}

impl TextFile {
    /// True if the name ends in `.extension`.
    pub fn is(&self, extension: &str) -> bool {
        self.path.rsplit_once('.').is_some_and(|(_, end)| end == extension)
    }

    /// True for Rust, C, Python and shell.
    pub fn is_code(&self) -> bool {
        ["rs", "c", "h", "py", "sh"].iter().any(|extension| self.is(extension))
            || self.path == ".ci/run"
    }
}

impl Workspace {
    /// Asks cargo for the packages and reads the files.
    ///
    /// Errors if cargo cannot read a Cargo.toml or a file cannot be read.
    pub fn load() -> anyhow::Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .context("xtask lies in the root of the workspace")?
            .to_path_buf();
        let packages = read_packages(&root)?;
        let mut files = Vec::new();
        collect_files(&root, &root, &mut files)?;
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Self { root, packages, files })
    }

    /// Cargo, to be run in the root: the cargo that runs this program, if any.
    pub fn cargo(&self) -> Command {
        cargo_in(&self.root)
    }

    /// The file with this path relative to the root, if it exists.
    pub fn file(&self, path: &str) -> Option<&TextFile> {
        self.files
            .binary_search_by(|file| file.path.as_str().cmp(path))
            .ok()
            .map(|index| &self.files[index])
    }
}

fn cargo_in(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    command
}

fn read_packages(root: &Path) -> anyhow::Result<Vec<Package>> {
    // --no-deps reads the Cargo.toml files and resolves nothing: fast, and needs no network.
    let output = cargo_in(root)
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .output()
        .context("cannot run cargo")?;
    if !output.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let metadata: Value = serde_json::from_slice(&output.stdout).context("cargo metadata")?;
    array(&metadata, "packages").iter().map(|package| read_package(root, package)).collect()
}

fn read_package(root: &Path, package: &Value) -> anyhow::Result<Package> {
    let manifest = relative(root, Path::new(text(package, "manifest_path")?))?;
    let targets = array(package, "targets")
        .iter()
        .map(|target| relative(root, Path::new(text(target, "src_path")?)))
        .collect::<anyhow::Result<_>>()?;
    let dependencies = array(package, "dependencies")
        .iter()
        .map(|dependency| {
            let only_tests = dependency["kind"].as_str() == Some("dev");
            Ok(Dependency { name: text(dependency, "name")?.to_owned(), only_tests })
        })
        .collect::<anyhow::Result<_>>()?;
    Ok(Package {
        name: text(package, "name")?.to_owned(),
        folder: manifest.trim_end_matches("Cargo.toml").trim_end_matches('/').to_owned(),
        targets,
        dependencies,
    })
}

fn array<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value[field].as_array().map_or(&[], Vec::as_slice)
}

fn text<'a>(value: &'a Value, field: &str) -> anyhow::Result<&'a str> {
    value[field].as_str().with_context(|| format!("cargo metadata gives no `{field}`"))
}

fn relative(root: &Path, path: &Path) -> anyhow::Result<String> {
    let inside = path
        .strip_prefix(root)
        .with_context(|| format!("{} lies outside of the workspace", path.display()))?;
    Ok(inside.to_string_lossy().replace('\\', "/"))
}

fn collect_files(root: &Path, folder: &Path, files: &mut Vec<TextFile>) -> anyhow::Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("{}", folder.display()))?;
    for entry in entries {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        let kind = entry.file_type()?;
        if kind.is_dir() {
            let hidden = name.starts_with('.') && !DOT_FOLDERS.contains(&&*name);
            if !hidden && !FOLDERS_LEFT_OUT.contains(&&*name) {
                collect_files(root, &path, files)?;
            }
        } else if kind.is_file() && is_text(&relative(root, &path)?) {
            let text = fs::read_to_string(&path).with_context(|| format!("{}", path.display()))?;
            files.push(TextFile { path: relative(root, &path)?, text });
        }
    }
    Ok(())
}

fn is_text(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    NAMES.contains(&path)
        || NAMES.contains(&name)
        || name.rsplit_once('.').is_some_and(|(_, end)| EXTENSIONS.contains(&end))
}
