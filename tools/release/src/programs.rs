//! The programs of the image, built so that neither folders nor the time of the build are in them.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::command::{output_of, run};
use crate::platform::Platform;
use crate::source::Source;

/// The oldest C library with which programs and hook work: that of the hook, which is loaded into other images (`.ci/run glibc`).
const GLIBC: &str = "2.17";
/// The folder of the sources in debug information and messages.
const SOURCES: &str = "/usr/src/sluice";
/// The folder of the dependencies there.
const DEPENDENCIES: &str = "/usr/src/cargo";

/// The built files of one platform.
pub(crate) struct Programs {
    pub(crate) sluice: PathBuf,
    pub(crate) hook: PathBuf,
}

/// Installs cargo-zigbuild, zig and Rust's libraries for all platforms.
pub(crate) fn install_tools(source: &Source) -> Result<()> {
    run(Command::new(source.root.join(".ci/run")).arg("zigbuild"))?;
    let triples = Platform::ALL.map(Platform::triple);
    run(Command::new("rustup").current_dir(&source.root).args(["target", "add"]).args(triples))
}

/// The names and versions of the tools that make the programs.
pub(crate) fn tool_versions(source: &Source) -> Result<BTreeMap<&'static str, String>> {
    let path = path(&tools(&home()?))?;
    let version = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.current_dir(&source.root).env("PATH", &path).args(arguments);
        Ok::<_, anyhow::Error>(output_of(&mut command)?.trim().to_owned())
    };
    Ok(BTreeMap::from([
        ("rustc", version("rustc", &["--version"])?),
        ("cargo-zigbuild", version("cargo-zigbuild", &["--version"])?),
        ("zig", version("python3", &["-m", "ziglang", "version"])?),
    ]))
}

/// Builds the programs of one platform.
pub(crate) fn build(source: &Source, platform: Platform) -> Result<Programs> {
    let triple = platform.triple();
    // One command for each: built together, the hook's dependencies would have features that only `sluice` needs.
    for package in ["sluice-hook", "sluice-cli"] {
        let mut cargo = Command::new("cargo");
        cargo.current_dir(&source.root).args(["zigbuild", "--release", "--locked", "--package", package]);
        cargo.arg("--target").arg(format!("{triple}.{GLIBC}"));
        environment(&mut cargo, source, triple)?;
        run(&mut cargo)?;
    }
    let folder = source.root.join("target").join(triple).join("release");
    let programs = Programs { sluice: folder.join("sluice"), hook: folder.join("libsluice.so") };
    run(Command::new(source.root.join("tests/glibc-floor")).arg(&programs.hook).arg(GLIBC))?;
    Ok(programs)
}

fn environment(cargo: &mut Command, source: &Source, triple: &str) -> Result<()> {
    let home = home()?;
    let cargo_home = env::var_os("CARGO_HOME").map_or_else(|| home.join(".cargo"), PathBuf::from);
    let folders = [(source.root.as_path(), SOURCES), (cargo_home.as_path(), DEPENDENCIES)];
    let flags =
        |flag: &str| folders.map(|(folder, name)| format!("{flag}={}={name}", folder.display())).join(" ");
    cargo.env("PATH", path(&tools(&home))?);
    // Paths of generated code and of C sources contain the target folder.
    cargo.env("CARGO_TARGET_DIR", source.root.join("target"));
    cargo.env("CARGO_INCREMENTAL", "0");
    // With several units for a crate, rustc optimises across them (ThinLTO) and names their symbols by hashes that differ between two
    // builds of the same commit.
    cargo.env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1");
    cargo.env("RUSTFLAGS", flags("--remap-path-prefix"));
    cargo.env(format!("CFLAGS_{}", triple.replace('-', "_")), flags("-ffile-prefix-map"));
    cargo.env("SOURCE_DATE_EPOCH", source.time.to_string());
    Ok(())
}

/// The folder into which `.ci/run` installs its tools.
fn tools(home: &Path) -> PathBuf {
    env::var_os("SLUICE_CI_TOOLS").map_or_else(|| home.join(".cache/sluice-ci"), PathBuf::from)
}

fn home() -> Result<PathBuf> {
    env::var_os("HOME").map(PathBuf::from).context("the variable HOME is not set; expected the user's folder")
}

/// `PATH` with the tools in front.
fn path(tools: &Path) -> Result<OsString> {
    let present = env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(tools.join("venv/bin")).chain(env::split_paths(&present));
    env::join_paths(folders).with_context(|| format!("{} cannot be part of PATH", tools.display()))
}
