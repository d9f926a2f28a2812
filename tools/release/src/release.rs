//! Makes all parts of a release, in order, and writes them into one folder.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use cargo_metadata::{Metadata, MetadataCommand};
use oci_spec::image::Descriptor;

use crate::archive::Archive;
use crate::command::run;
use crate::digest::sha256;
use crate::layout::Layout;
use crate::packages::Package;
use crate::platform::Platform;
use crate::programs;
use crate::provenance::{self, Builder};
use crate::source::Source;
use crate::{bill_of_materials, chart, checksums, image, packages};

/// The image's name in the project's registry, where the chart expects it.
const IMAGE: &str = "ghcr.io/sluice-gpu/sluice";
/// The chart's name there.
const CHART: &str = "ghcr.io/sluice-gpu/charts/sluice";

/// Makes the release of the workspace in the current folder.
pub(crate) fn make(folder: &Path, builder: &str) -> Result<()> {
    let mut output = Output::new(folder)?;
    let metadata = metadata_of_platforms()?;
    let source = source(&metadata)?;
    let packages = source.root.join("docker/packages");
    let packages =
        fs::read_to_string(&packages).with_context(|| format!("reading {}", packages.display()))?;
    let packages = packages::parse(&packages)?;
    let version = &source.version;

    programs::install_tools(&source)?;
    let tools = programs::tool_versions(&source)?;
    let mut layout = Layout::default();
    let file_systems = file_systems(&source, &packages)?;
    let index = image::add(&mut layout, &source, &file_systems)?;
    output.digest(IMAGE, &index);
    output.write(&format!("sluice-image-{version}.oci.tar"), &layout.finish(index, version, source.time)?)?;

    let charts = source.root.join("charts/sluice");
    let archived = chart::archive(&charts, source.time)?;
    output.write(&format!("sluice-{version}.tgz"), &archived)?;
    let mut layout = Layout::default();
    let artefact = chart::add(&mut layout, &source, &charts, archived)?;
    output.digest(CHART, &artefact);
    output
        .write(&format!("sluice-chart-{version}.oci.tar"), &layout.finish(artefact, version, source.time)?)?;

    let bill = bill_of_materials::json(&source, &metadata, &packages)?;
    output.write(&format!("sluice-{version}.cdx.json"), &bill)?;
    let made_by = Builder { id: builder, tools: &tools };
    let statement = provenance::statement(&source, &output.subjects, &packages, &made_by)?;
    output.write(&format!("sluice-{version}.provenance.json"), &statement)?;
    output.finish()
}

/// The manifest of the workspace whose programs are released.
pub(crate) const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml");

/// What cargo reports about the dependencies on each platform.
fn metadata_of_platforms() -> Result<Vec<Metadata>> {
    let of = |platform: Platform| {
        let mut command = MetadataCommand::new();
        command.manifest_path(WORKSPACE);
        command.other_options(["--locked", "--filter-platform", platform.triple()].map(str::to_owned));
        command.exec().with_context(|| format!("reading the dependencies for {}", platform.name()))
    };
    Platform::ALL.into_iter().map(of).collect()
}

fn source(metadata: &[Metadata]) -> Result<Source> {
    let metadata = metadata.first().context("no platform")?;
    let program = metadata.packages.iter().find(|package| package.name == "sluice-cli");
    let program = program.context("the workspace has no package sluice-cli")?;
    let repository = program.repository.as_deref().context("the package sluice-cli names no repository")?;
    Source::read(metadata.workspace_root.as_std_path(), &program.version.to_string(), repository)
}

/// The image's file system on each platform, as a tar archive.
fn file_systems(source: &Source, packages: &[Package]) -> Result<Vec<(Platform, Vec<u8>)>> {
    let mut systems = Vec::new();
    for platform in Platform::ALL {
        eprintln!("release: building for {}", platform.name());
        let programs = programs::build(source, platform)?;
        let work = tempfile::tempdir().context("creating a temporary folder")?;
        let root = packages::unpack(packages, platform, work.path())?;
        let laid_out = work.path().join("image");
        let mut lay_out = Command::new(source.root.join("docker/lay-out"));
        run(lay_out.arg(&laid_out).arg(&programs.sluice).arg(&programs.hook).arg(&root))?;
        let mut archive = Archive::new(source.time);
        archive.add_tree(&laid_out, "")?;
        systems.push((platform, archive.finish()?));
    }
    Ok(systems)
}

/// The folder of the release.
struct Output {
    folder: PathBuf,
    /// Names and SHA-256 of the files so far.
    files: BTreeMap<String, String>,
    /// The files, and what a registry has of them.
    subjects: BTreeMap<String, String>,
}

impl Output {
    fn new(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
        let mut entries = fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
        ensure!(entries.next().is_none(), "{} is not empty", folder.display());
        Ok(Self { folder: folder.to_owned(), files: BTreeMap::new(), subjects: BTreeMap::new() })
    }

    fn digest(&mut self, name: &str, descriptor: &Descriptor) {
        self.subjects.insert(name.to_owned(), descriptor.digest().digest().to_owned());
    }

    fn write(&mut self, name: &str, content: &[u8]) -> Result<()> {
        let path = self.folder.join(name);
        fs::write(&path, content).with_context(|| format!("writing {}", path.display()))?;
        let digest = sha256(content);
        self.files.insert(name.to_owned(), digest.clone());
        self.subjects.insert(name.to_owned(), digest);
        Ok(())
    }

    fn finish(mut self) -> Result<()> {
        let list = checksums::list(&self.files);
        self.write("SHA256SUMS", list.as_bytes())?;
        print_summary(&list);
        Ok(())
    }
}

#[expect(clippy::print_stdout, reason = "the result of the command")]
fn print_summary(list: &str) {
    print!("{list}");
}
