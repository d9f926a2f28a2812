//! Builds the programs under test from inside a test: libraries that are preloaded and programs that run as processes of their own.
//!
//! The cargo that runs the test builds them in the same profile and target directory. So plain `cargo test` on a fresh machine tests
//! the present sources. `xtask` starts its cargo in the same way.
#![forbid(unsafe_code)]

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Cargo's directories, derived from the path of the test executable: `TARGET/[TRIPLE/]PROFILE/deps/test-hash`.
#[derive(Debug)]
pub struct Layout {
    /// Cargo's target directory.
    pub target: PathBuf,
    triple: Option<String>,
    /// The directory with the built programs and libraries.
    pub profile_dir: PathBuf,
}

impl Layout {
    /// The directories of the test that runs.
    ///
    /// # Panics
    /// When the test executable is not in a target directory.
    pub fn of_this_test() -> Self {
        let exe = env::current_exe().unwrap_or_else(|error| panic!("finding the test executable: {error}"));
        let profile_dir = exe.parent().and_then(Path::parent).map(Path::to_path_buf);
        let profile_dir = profile_dir.unwrap_or_else(|| panic!("{} is not in a cargo target", exe.display()));
        let parent = profile_dir.parent().map(Path::to_path_buf).unwrap_or_default();
        if parent.join("CACHEDIR.TAG").exists() && !parent.join("../CACHEDIR.TAG").exists() {
            return Self { target: parent, triple: None, profile_dir };
        }
        let triple = parent.file_name().map(|name| name.to_string_lossy().into_owned());
        let target = parent.parent().map(Path::to_path_buf).unwrap_or_default();
        Self { target, triple, profile_dir }
    }

    /// Builds packages, with only the features that they need.
    ///
    /// # Panics
    /// When they cannot be built.
    pub fn build(&self, packages: &[&str]) {
        let mut command = cargo();
        let profile = match self.profile_dir.file_name().and_then(|name| name.to_str()) {
            Some("debug") | None => "dev",
            Some(name) => name,
        };
        command.args(["build", "--quiet", "--profile", profile]);
        if is_workspace_run() {
            // The whole workspace's tests were built before: with the same features only these programs are missing.
            command.args(["--workspace", "--lib", "--bins", "--tests"]);
        } else {
            command.arg("--no-default-features");
            command.args(packages.iter().flat_map(|package| ["-p", package]));
        }
        command.env("CARGO_TARGET_DIR", &self.target);
        if let Some(triple) = &self.triple {
            command.args(["--target", triple]);
        }
        let output = command.output().unwrap_or_else(|error| panic!("running {command:?}: {error}"));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command:?} failed:\n{errors}");
    }
}

/// A command of the cargo that runs this program, in the workspace. Cargo describes the package to a program that it runs in
/// `CARGO_PKG_NAME` and similar variables. The build script of ring depends on them, so an inner cargo with them would build ring and the
/// 20 crates above it again.
pub fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in env::vars_os() {
        if ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    command.current_dir(workspace());
    command
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Whether cargo has built the tests of the whole workspace. Another selection of packages has other features of dependencies, and cargo
/// would build these dependencies a second time: 4 minutes on two cores.
///
/// `SLUICE_TESTS_BUILD` decides if it is set. Otherwise the command line of the cargo that runs this test program does: without packages
/// and in the root of the workspace, `cargo test` selects all packages. A wrong guess costs time only.
fn is_workspace_run() -> bool {
    if let Some(selection) = env::var_os("SLUICE_TESTS_BUILD") {
        return selection == "workspace";
    }
    let cargo = PathBuf::from(format!("/proc/{}", std::os::unix::process::parent_id()));
    let is_in_root = fs::read_link(cargo.join("cwd")).ok() == workspace().canonicalize().ok();
    is_in_root && selects_workspace(&fs::read_to_string(cargo.join("cmdline")).unwrap_or_default())
}

/// Whether a command line, with NUL after each word, is `cargo test` for all packages and default features.
fn selects_workspace(command_line: &str) -> bool {
    let words = || command_line.split('\0').take_while(|word| *word != "--");
    let narrows = |word: &str| {
        word.starts_with("-p")
            || ["--package", "--exclude", "--manifest-path", "--features", "--no-default-features"]
                .iter()
                .any(|flag| word.starts_with(flag))
    };
    words().any(|word| word == "test") && !words().any(narrows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_cargo_test_without_packages_selects_the_workspace() {
        assert!(selects_workspace("/bin/cargo\0test\0--locked\0"));
        assert!(selects_workspace("cargo\0test\0--\0-p\0"));
        for narrower in ["cargo\0test\0-p\0x\0", "cargo\0test\0-px\0", "cargo\0test\0--package=x\0", "sh\0"] {
            assert!(!selects_workspace(narrower), "{narrower:?}");
        }
    }
}
