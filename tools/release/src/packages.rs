//! Debian's packages with the image's C library: which ones (`docker/packages`), and their files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::command::run;
use crate::digest::sha256;
use crate::platform::Platform;

/// A package, named so exactly that only one file is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Package {
    pub(crate) platform: Platform,
    pub(crate) name: String,
    pub(crate) version: String,
    /// SHA-256 of the package's file, in hexadecimal digits.
    pub(crate) sha256: String,
}

impl Package {
    /// The package's URL, as CycloneDX and SLSA name packages.
    pub(crate) fn url(&self) -> String {
        format!("pkg:deb/debian/{}@{}?arch={}", self.name, self.version, self.platform.name())
    }
}

/// Reads the list: one package a line. Reports all wrong lines at once.
pub(crate) fn parse(text: &str) -> Result<Vec<Package>> {
    let mut packages = Vec::new();
    let mut mistakes = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        if line.starts_with('#') || line.trim().is_empty() {
            continue;
        }
        match package(line) {
            Ok(package) => packages.push(package),
            Err(error) => mistakes.push(format!("line {number}: {error}")),
        }
    }
    ensure!(mistakes.is_empty(), "docker/packages: {}", mistakes.join("; "));
    Ok(packages)
}

fn package(line: &str) -> Result<Package> {
    let [platform, name, version, sha256] = line.split_whitespace().collect::<Vec<_>>()[..] else {
        bail!("'{line}' is not: architecture, name, version, SHA-256");
    };
    let platform = Platform::ALL.into_iter().find(|known| known.name() == platform);
    let platform = platform.with_context(|| format!("'{line}' begins with neither amd64 nor arm64"))?;
    let is_digest = sha256.len() == 64 && sha256.bytes().all(|byte| byte.is_ascii_hexdigit());
    ensure!(is_digest, "'{sha256}' is no SHA-256 of 64 hexadecimal digits");
    Ok(Package { platform, name: name.into(), version: version.into(), sha256: sha256.to_ascii_lowercase() })
}

/// Downloads the platform's packages with apt, whose configuration is this machine's, and unpacks them into a folder, which it returns.
/// apt's own state stays inside `work`, so that the machine needs no foreign architecture.
pub(crate) fn unpack(packages: &[Package], platform: Platform, work: &Path) -> Result<PathBuf> {
    let wanted: Vec<&Package> = packages.iter().filter(|package| package.platform == platform).collect();
    ensure!(!wanted.is_empty(), "docker/packages has no package for {}", platform.name());
    let (state, cache, files, root) =
        (work.join("state"), work.join("cache"), work.join("files"), work.join("root"));
    for folder in [&state.join("lists/partial"), &cache.join("archives/partial"), &files, &root] {
        fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    }
    let status = state.join("status");
    fs::write(&status, "").with_context(|| format!("writing {}", status.display()))?;
    let apt = || {
        let mut apt = Command::new("apt-get");
        apt.current_dir(&files).args(["-qq", "-o", "APT::Sandbox::User=", "-o", "Acquire::Languages=none"]);
        let architecture = platform.name();
        for (key, value) in [
            ("APT::Architecture", architecture.to_owned()),
            ("APT::Architectures", architecture.to_owned()),
            ("Dir::State", state.display().to_string()),
            ("Dir::State::status", status.display().to_string()),
            ("Dir::Cache", cache.display().to_string()),
        ] {
            apt.arg("-o").arg(format!("{key}={value}"));
        }
        apt
    };
    run(apt().arg("update"))?;
    run(apt().arg("download").args(wanted.iter().map(|package| &package.name)))?;
    for file in matching(&wanted, &files)? {
        run(Command::new("dpkg-deb").arg("--extract").arg(&file).arg(&root))?;
    }
    Ok(root)
}

/// The files of the packages in a folder; an error with the lines for `docker/packages` if any differs.
fn matching(wanted: &[&Package], folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut unexpected = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry.with_context(|| format!("reading {}", folder.display()))?.path();
        let digest = sha256(&fs::read(&path).with_context(|| format!("reading {}", path.display()))?);
        if wanted.iter().any(|package| package.sha256 == digest) {
            found.push(path);
        } else {
            unexpected.push(line_of(&path, &digest));
        }
    }
    ensure!(
        found.len() == wanted.len() && unexpected.is_empty(),
        "the package registry has other packages than docker/packages names; if they are an update, write:\n{}",
        unexpected.join("\n")
    );
    found.sort();
    Ok(found)
}

/// The line for a file that apt named `NAME_VERSION_ARCHITECTURE.deb`. apt writes a colon as `%3a`.
fn line_of(path: &Path, digest: &str) -> String {
    let name = path.file_stem().unwrap_or_default().to_string_lossy().replace("%3a", ":");
    let mut parts = name.split('_');
    let (name, version, platform) = (parts.next(), parts.next(), parts.next());
    let part = |part: Option<&str>| part.unwrap_or("?").to_owned();
    format!("{} {} {} {digest}", part(platform), part(name), part(version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_names_the_same_packages_for_both_platforms() {
        let text = include_str!("../../../docker/packages");
        let packages = parse(text).unwrap();
        let of = |platform| {
            let of_it = packages.iter().filter(|package| package.platform == platform);
            of_it.map(|package| (&package.name, &package.version)).collect::<Vec<_>>()
        };
        assert_eq!(of(Platform::Amd64).len(), 2);
        assert_eq!(of(Platform::Amd64), of(Platform::Arm64));
    }

    #[test]
    fn all_wrong_lines_are_reported_at_once() {
        let error =
            parse("# comment\nsparc libc6 1 00\namd64 libc6 1 abc\namd64 libc6\n").unwrap_err().to_string();
        for part in [
            "line 2",
            "neither amd64 nor arm64",
            "line 3",
            "'abc' is no SHA-256",
            "line 4",
            "is not: architecture",
        ] {
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn another_file_is_refused_with_the_line_that_would_accept_it() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("libc6_1%3a2-3_arm64.deb"), "new").unwrap();
        let wanted = package(&format!("arm64 libc6 1:2-2 {}", sha256(b"old"))).unwrap();
        let error = matching(&[&wanted], folder.path()).unwrap_err().to_string();
        let line = format!("arm64 libc6 1:2-3 {}", sha256(b"new"));
        assert!(error.ends_with(&line), "{error}");
        let accepted = package(&line).unwrap();
        assert_eq!(matching(&[&accepted], folder.path()).unwrap().len(), 1);
    }
}
