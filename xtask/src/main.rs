//! Tasks for developers: `cargo xtask TASK`.
//!
//! * `build [--profile release|dev]`: builds the programs and libraries that a run needs into one directory. The hook and the
//!   simulator are libraries that nothing may link, so no cargo alias can build them together with `sluice`.
//! * `check`: formatting, lints and unit tests, for each commit. `.ci/run` is the complete gate.
//! * `release FOLDER`: makes a release into the folder; `sluice-release` does it.
//! * `demo [ARGS]`: builds in release mode and runs `sluice demo ARGS`; `cargo demo [ARGS]` is short for it.
#![forbid(unsafe_code)]

use sluice_test_programs::cargo;
use std::env;
use std::ffi::OsString;
use std::io;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

/// Packages of the product: `sluice`, `libsluice.so`, `libcuda.so`.
const PRODUCT: [&str; 3] = ["sluice-cli", "sluice-hook", "sluice-sim-cuda"];
/// Further names of the product: that of the library which programs written for REEF are linked against, and that by which kubectl
/// finds a plugin.
const LINKS: [(&str, &str); 2] = [("libsluice.so", "libcudareef.so"), ("sluice", "kubectl-sluice")];
/// Adds `sluice-dev` to the product.
const WITH_DEVTOOLS: [&str; 2] = ["--package", "sluice-devtools"];
/// Leaves out the parts that talk to Kubernetes: builds in a third of the time.
const WITHOUT_CLUSTER: [&str; 1] = ["--no-default-features"];

const USAGE: &str = "usage: cargo xtask build [--profile release|dev]
       cargo xtask check
       cargo xtask demo [arguments of `sluice demo`]
       cargo xtask release FOLDER [--builder URI]";

fn main() -> ExitCode {
    let mut arguments = env::args_os().skip(1);
    let outcome = match arguments.next().as_ref().and_then(|task| task.to_str()) {
        Some("build") => {
            profile_of(arguments).and_then(|profile| build(&profile, &WITH_DEVTOOLS)).map(|_| ())
        }
        Some("check") if arguments.next().is_none() => check(),
        Some("demo") => demo(arguments.collect()),
        Some("release") => release(arguments.collect()),
        _ => Err(USAGE.to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Reads `--profile NAME` (or `--profile=NAME`); release if it is absent.
fn profile_of(mut arguments: impl Iterator<Item = OsString>) -> Result<String, String> {
    let Some(first) = arguments.next() else { return Ok("release".to_owned()) };
    let profile = match first.to_str() {
        Some("--profile") => arguments.next().and_then(|name| name.into_string().ok()),
        Some(text) => text.strip_prefix("--profile=").map(str::to_owned),
        None => None,
    };
    profile.filter(|_| arguments.next().is_none()).ok_or_else(|| USAGE.to_owned())
}

/// Runs a cargo command to its end.
fn run(mut command: Command, what: &str) -> Result<(), String> {
    let status = command.status().map_err(|error| format!("cannot run cargo: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{what} failed: {status}")) }
}

/// Builds the product with further flags and returns the directory that contains it.
fn build(profile: &str, flags: &[&str]) -> Result<PathBuf, String> {
    let mut command = cargo();
    command.args(["build", "--profile", profile]).args(flags);
    for package in PRODUCT {
        command.args(["--package", package]);
    }
    run(command, "the build")?;
    let folder = if profile == "dev" { "debug" } else { profile };
    let folder = target_folder()
        .map_err(|error| format!("cannot find cargo's target directory: {error}"))?
        .join(folder);
    for (target, name) in LINKS {
        link(target, &folder.join(name))
            .map_err(|error| format!("cannot link {name} in {}: {error}", folder.display()))?;
    }
    Ok(folder)
}

/// Checks formatting and lints, and runs the unit tests of all crates.
fn check() -> Result<(), String> {
    let steps: [(&str, &[&str]); 3] = [
        ("formatting (mend it with `cargo fmt --all`)", &["fmt", "--all", "--check"]),
        (
            "clippy",
            &["clippy", "--workspace", "--all-targets", "--locked", "--quiet", "--", "-D", "warnings"],
        ),
        ("a unit test", &["test", "--workspace", "--lib", "--bins", "--locked", "--quiet"]),
    ];
    for (what, arguments) in steps {
        let begun = Instant::now();
        let mut command = cargo();
        command.args(arguments);
        run(command, what)?;
        eprintln!("cargo {}: {} s", arguments.first().unwrap_or(&""), begun.elapsed().as_secs());
    }
    Ok(())
}

/// Makes a link, unless there is one already.
fn link(target: &str, name: &Path) -> io::Result<()> {
    match symlink(target, name) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        linked => linked,
    }
}

/// The target directory. This program was built into one of its profile directories, so the path is right for every setting of
/// `CARGO_TARGET_DIR`, `build.target-dir` and `build.target`.
fn target_folder() -> io::Result<PathBuf> {
    let mine = env::current_exe()?;
    mine.ancestors().nth(2).map(Path::to_owned).ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Builds in release mode, then replaces this process by `sluice demo`, so that signals and the exit code need no forwarding.
fn demo(arguments: Vec<OsString>) -> Result<(), String> {
    let program = build("release", &WITHOUT_CLUSTER)?.join("sluice");
    let error = Command::new(&program).arg("demo").args(arguments).exec();
    Err(format!("cannot run {}: {error}", program.display()))
}

/// Makes a release by a program of its own, so that the other tasks need not build its dependencies.
fn release(arguments: Vec<OsString>) -> Result<(), String> {
    let mut command = cargo();
    // Optimised, because it compresses and hashes the images.
    command
        .args([
            "run",
            "--quiet",
            "--release",
            "--locked",
            "--manifest-path",
            "tools/release/Cargo.toml",
            "--",
        ])
        .args(arguments);
    run(command, "the release")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    /// cargo reads the manifest of every member, so the build of the image fails without one of them.
    #[test]
    fn every_member_of_the_workspace_is_in_the_build_context_of_the_image() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let read = |name: &str| std::fs::read_to_string(root.join(name)).unwrap();
        let (manifest, ignored) = (read("Cargo.toml"), read(".dockerignore"));
        let members = manifest.lines().find(|line| line.starts_with("members = ")).unwrap();
        let members: Vec<&str> = members.split('"').skip(1).step_by(2).collect();
        assert!(members.contains(&"hook"), "{members:?}");
        for member in members {
            let kept = format!("!{}", member.trim_end_matches("/*"));
            assert!(ignored.lines().any(|line| line == kept), ".dockerignore has no line {kept}");
        }
    }
}
