//! The chart: as an archive, and as an artefact that a registry of images stores.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use oci_spec::image::{Descriptor, ImageManifestBuilder, MediaType, SCHEMA_VERSION};

use crate::archive::{Archive, gzip};
use crate::image::about;
use crate::layout::Layout;
use crate::source::Source;

/// Helm's media type of a chart's metadata.
const METADATA: &str = "application/vnd.cncf.helm.config.v1+json";
/// Helm's media type of a chart's archive.
const CONTENT: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";

/// The archive of the chart in a folder, as `helm package` makes it except for the times in it.
pub(crate) fn archive(folder: &Path, time: u64) -> Result<Vec<u8>> {
    let mut archive = Archive::new(time);
    archive.add_tree(folder, "sluice")?;
    gzip(&archive.finish()?)
}

/// Adds the artefact and returns its descriptor. `archived` is the chart's archive.
pub(crate) fn add(
    layout: &mut Layout,
    source: &Source,
    folder: &Path,
    archived: Vec<u8>,
) -> Result<Descriptor> {
    let path = folder.join("Chart.yaml");
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let metadata: serde_json::Value =
        serde_yaml::from_str(&text).with_context(|| format!("reading {}", path.display()))?;
    let manifest = ImageManifestBuilder::default()
        .schema_version(SCHEMA_VERSION)
        .media_type(MediaType::ImageManifest)
        .config(layout.add_json(METADATA.into(), &metadata)?)
        .layers([layout.add(CONTENT.into(), archived)?])
        .annotations(about(source)?)
        .build()?;
    layout.add_json(MediaType::ImageManifest, &manifest)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn chart() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("Chart.yaml"), "apiVersion: v2\nname: sluice\nversion: 1.2.3\n")
            .unwrap();
        fs::create_dir(folder.path().join("templates")).unwrap();
        fs::write(folder.path().join("templates/a.yaml"), "a: 1\n").unwrap();
        folder
    }

    #[test]
    fn artefact_has_helms_media_types_the_metadata_as_json_and_the_archive() {
        let folder = chart();
        let source = Source::example();
        let archived = archive(folder.path(), source.time).unwrap();
        let mut layout = Layout::default();
        add(&mut layout, &source, folder.path(), archived.clone()).unwrap();
        let metadata = layout.add_json(
            METADATA.into(),
            &serde_json::json!({"apiVersion": "v2", "name": "sluice", "version": "1.2.3"}),
        );
        let content = layout.add(CONTENT.into(), archived).unwrap();
        let wanted = (metadata.unwrap(), content);
        let manifest = layout.blobs().find(|blob| blob.starts_with(b"{\"annotations")).unwrap();
        let manifest = oci_spec::image::ImageManifest::from_reader(manifest).unwrap();
        assert_eq!((manifest.config().clone(), manifest.layers()[0].clone()), wanted);
    }

    #[test]
    fn archive_has_the_charts_files_below_its_name() {
        let archived = archive(chart().path(), 1_700_000_000).unwrap();
        let mut bytes = Vec::new();
        flate2::read::GzDecoder::new(&archived[..]).read_to_end(&mut bytes).unwrap();
        let mut names = Vec::new();
        for entry in tar::Archive::new(&bytes[..]).entries().unwrap() {
            names.push(entry.unwrap().path().unwrap().display().to_string());
        }
        assert_eq!(names, ["sluice/Chart.yaml", "sluice/templates/", "sluice/templates/a.yaml"]);
    }
}
