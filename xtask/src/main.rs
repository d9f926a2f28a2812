//! Builds the three packages that a run needs (the hook and the simulator are libraries that nothing may link, so a cargo
//! alias cannot pull them in), then hands the terminal over to the binary.
//!
//! `cargo demo [ARGS]` is `cargo xtask demo [ARGS]`; `cargo xtask build [--profile release|dev]` only builds.
#![forbid(unsafe_code)]

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The packages whose build results lie next to each other in the target directory: `sluice`, `libsluice.so`, `libcuda.so`.
const PACKAGES: [&str; 3] = ["sluice-cli", "sluice-hook", "sluice-sim-cuda"];

const USAGE: &str =
    "usage: cargo xtask build [--profile release|dev]\n       cargo xtask demo [arguments of `sluice demo`]";

fn main() -> ExitCode {
    let mut arguments = env::args_os().skip(1);
    let outcome = match arguments.next().as_ref().and_then(|task| task.to_str()) {
        Some("build") => profile_of(arguments).and_then(|profile| build(&profile, Parts::All)).map(|_| ()),
        Some("demo") => demo(arguments.collect()),
        _ => Err(USAGE.to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

/// Reads `--profile NAME` (or `--profile=NAME`); release when there is none.
fn profile_of(mut arguments: impl Iterator<Item = OsString>) -> Result<String, String> {
    let Some(first) = arguments.next() else { return Ok("release".to_owned()) };
    let profile = match first.to_str() {
        Some("--profile") => arguments.next().and_then(|name| name.into_string().ok()),
        Some(text) => text.strip_prefix("--profile=").map(str::to_owned),
        None => None,
    };
    profile.filter(|_| arguments.next().is_none()).ok_or_else(|| USAGE.to_owned())
}

/// Whether the binary gets the parts that talk to Kubernetes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Parts {
    /// Everything.
    All,
    /// What one machine needs: builds in a third of the time.
    WithoutCluster,
}

/// Builds [`PACKAGES`] and returns the directory in which they lie.
fn build(profile: &str, parts: Parts) -> Result<PathBuf, String> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--profile", profile, "--manifest-path"]).arg(workspace.join("Cargo.toml"));
    for package in PACKAGES {
        command.args(["--package", package]);
    }
    if parts == Parts::WithoutCluster {
        command.arg("--no-default-features");
    }
    let status = command.status().map_err(|why| format!("cannot run cargo: {why}"))?;
    if !status.success() {
        return Err(format!("building {} failed: {status}", PACKAGES.join(", ")));
    }
    let folder = if profile == "dev" { "debug" } else { profile };
    let folder =
        target_folder().map_err(|why| format!("cannot tell where cargo builds: {why}"))?.join(folder);
    name_twice(&folder)
        .map_err(|why| format!("cannot link libcudareef.so in {}: {why}", folder.display()))?;
    Ok(folder)
}

/// Gives the hook its other name, by which programs written for REEF are linked.
fn name_twice(folder: &Path) -> io::Result<()> {
    match symlink("libsluice.so", folder.join("libcudareef.so")) {
        Err(why) if why.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        linked => linked,
    }
}

/// The folder that holds the profiles' folders: this program was built into one of them, so it is right whatever
/// `CARGO_TARGET_DIR`, `build.target-dir` or `build.target` say.
fn target_folder() -> io::Result<PathBuf> {
    let mine = env::current_exe()?;
    mine.ancestors().nth(2).map(Path::to_owned).ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Builds what it needs in release, then becomes `sluice demo`: signals and the exit code need no forwarding.
fn demo(arguments: Vec<OsString>) -> Result<(), String> {
    let program = build("release", Parts::WithoutCluster)?.join("sluice");
    let why = Command::new(&program).arg("demo").args(arguments).exec();
    Err(format!("cannot run {}: {why}", program.display()))
}
