//! The programs under test, built once per test process: the hook, the simulator, `sluice` and `sluice-dev`.

use sluice_test_programs::Layout;
use std::fs;
use std::path::{Path, PathBuf};
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
        layout.build(&PACKAGES);
        lay_out(&layout)
    })
}

/// The parts for Kubernetes take long to build, and these tests do not use them.
const PACKAGES: [&str; 4] = ["sluice-hook", "sluice-sim-cuda", "sluice-cli", "sluice-devtools"];

fn lay_out(layout: &Layout) -> Artifacts {
    let scratch =
        layout.target.join("preload-tests").join(layout.profile_dir.file_name().unwrap_or_default());
    let driver = scratch.join("driver");
    let shim = scratch.join("shim");
    let reef = scratch.join("reef");
    let hook = layout.profile_dir.join("libsluice.so");
    for directory in [&driver, &shim, &reef] {
        fs::create_dir_all(directory)
            .unwrap_or_else(|error| panic!("creating {}: {error}", directory.display()));
    }
    // Several test processes use the same links. A correct link is not replaced while tenants use it.
    let lock = fs::File::create(scratch.join("layout.lock"));
    let lock = lock.unwrap_or_else(|error| panic!("creating the lock of {}: {error}", scratch.display()));
    lock.lock().unwrap_or_else(|error| panic!("locking {}: {error}", scratch.display()));
    let simulator = layout.profile_dir.join("libcuda.so");
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
    let [sluice, sluice_dev] = ["sluice", "sluice-dev"].map(|name| layout.profile_dir.join(name));
    Artifacts { hook, sluice, sluice_dev, simulator, driver, shim, reef, scratch }
}

fn replace_link(target: &Path, link: &Path) {
    let next = link.with_extension(format!("next-{}", std::process::id()));
    std::os::unix::fs::symlink(target, &next)
        .and_then(|()| fs::rename(&next, link))
        .unwrap_or_else(|error| panic!("linking {}: {error}", link.display()));
}
