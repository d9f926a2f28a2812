//! The programs under test, built once per test process: the hook, the simulator, `sluice` and `sluice-dev`.
//!
//! The cargo that runs the tests builds them in the same profile and target directory. So plain `cargo test` on a fresh machine tests
//! the present sources.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Paths of the build results; all are absolute.
#[derive(Debug)]
pub struct Artifacts {
    /// `libsluice.so`, the hook.
    pub hook: PathBuf,
    /// The program `sluice`.
    pub sluice: PathBuf,
    /// The program `sluice-dev`.
    pub sluice_dev: PathBuf,
    /// The simulator's driver library.
    pub simulator: PathBuf,
    /// A directory with the simulator's `libcuda.so.1`, `libcuda.so` and `libnvidia-ml.so.1`.
    pub driver: PathBuf,
    /// A directory in which `libcuda.so.1` is the hook.
    pub shim: PathBuf,
    /// A directory in which the hook is `libsluice.so` and `libcudareef.so`.
    pub reef: PathBuf,
    /// A directory below the target directory for compiled programs and locks; it outlives the test.
    pub scratch: PathBuf,
}

/// Builds everything at the first call, and returns the paths.
///
/// # Panics
/// When it cannot be built.
pub fn built() -> &'static Artifacts {
    static BUILT: OnceLock<Artifacts> = OnceLock::new();
    BUILT.get_or_init(|| {
        let layout = Layout::of_this_test();
        layout.build();
        layout.lay_out()
    })
}

/// Cargo's directories, derived from the path of the test executable: `TARGET/[TRIPLE/]PROFILE/deps/test-hash`.
struct Layout {
    target: PathBuf,
    triple: Option<String>,
    profile_dir: PathBuf,
}

impl Layout {
    fn of_this_test() -> Self {
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

    fn build(&self) {
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let profile = match self.profile_dir.file_name().and_then(|name| name.to_str()) {
            Some("debug") | None => "dev",
            Some(name) => name,
        };
        let mut command = Command::new(cargo);
        command.args(["build", "--quiet", "--profile", profile]);
        if is_workspace_run() {
            // The whole workspace's tests were built before: with the same features only these programs are missing.
            command.args(["--workspace", "--lib", "--bins", "--tests"]);
        } else {
            // The parts for Kubernetes take long to build and are not used by these tests.
            command.arg("--no-default-features");
            command.args([
                "-p",
                "sluice-hook",
                "-p",
                "sluice-sim-cuda",
                "-p",
                "sluice-cli",
                "-p",
                "sluice-devtools",
            ]);
        }
        command.current_dir(env!("CARGO_MANIFEST_DIR")).env("CARGO_TARGET_DIR", &self.target);
        if let Some(triple) = &self.triple {
            command.args(["--target", triple]);
        }
        let output = command.output().unwrap_or_else(|error| panic!("running {command:?}: {error}"));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command:?} failed:\n{errors}");
    }

    fn lay_out(&self) -> Artifacts {
        let scratch =
            self.target.join("preload-tests").join(self.profile_dir.file_name().unwrap_or_default());
        let driver = scratch.join("driver");
        let shim = scratch.join("shim");
        let reef = scratch.join("reef");
        let hook = self.profile_dir.join("libsluice.so");
        for directory in [&driver, &shim, &reef] {
            fs::create_dir_all(directory)
                .unwrap_or_else(|error| panic!("creating {}: {error}", directory.display()));
        }
        // Several test processes use the same links. A correct link is not replaced while tenants use it.
        let lock = fs::File::create(scratch.join("layout.lock"));
        let lock = lock.unwrap_or_else(|error| panic!("creating the lock of {}: {error}", scratch.display()));
        lock.lock().unwrap_or_else(|error| panic!("locking {}: {error}", scratch.display()));
        let simulator = self.profile_dir.join("libcuda.so");
        let up_to_date = sluice_sim::library::NAMES
            .iter()
            .all(|name| fs::read_link(driver.join(name)).is_ok_and(|target| target == simulator));
        if !up_to_date {
            sluice_sim::library::lay_out(&driver, &simulator)
                .unwrap_or_else(|error| panic!("laying out {}: {error}", driver.display()));
        }
        replace_link(&hook, &shim.join("libcuda.so.1"));
        replace_link(&hook, &reef.join("libsluice.so"));
        replace_link(&hook, &reef.join("libcudareef.so"));
        let [sluice, sluice_dev] = ["sluice", "sluice-dev"].map(|name| self.profile_dir.join(name));
        Artifacts { hook, sluice, sluice_dev, simulator, driver, shim, reef, scratch }
    }
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
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let is_in_root = fs::read_link(cargo.join("cwd")).ok() == root.canonicalize().ok();
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

fn replace_link(target: &Path, link: &Path) {
    let next = link.with_extension(format!("next-{}", std::process::id()));
    std::os::unix::fs::symlink(target, &next)
        .and_then(|()| fs::rename(&next, link))
        .unwrap_or_else(|error| panic!("linking {}: {error}", link.display()));
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
