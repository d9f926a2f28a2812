//! The image of the daemons, for all platforms.

use std::collections::HashMap;

use anyhow::Result;
use oci_spec::image::{
    Arch, ConfigBuilder, Descriptor, HistoryBuilder, ImageConfigurationBuilder, ImageIndexBuilder,
    ImageManifestBuilder, MediaType, Os, PlatformBuilder, RootFsBuilder, SCHEMA_VERSION,
};

use crate::archive::gzip;
use crate::digest::sha256;
use crate::layout::Layout;
use crate::platform::Platform;
use crate::source::Source;

/// What the Dockerfile's second stage sets.
const ENVIRONMENT: [&str; 2] = [
    "LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu:/usr/lib/aarch64-linux-gnu:/usr/lib64:/usr/local/nvidia/lib64",
    "PATH=/usr/bin",
];
/// The user and group that the Dockerfile names.
const USER: &str = "65532:65532";
/// The program that the Dockerfile starts.
const ENTRY_POINT: &str = "/usr/bin/sluice";

/// Adds the image, with one file system (a tar archive) for each platform, and returns the descriptor of its index.
pub(crate) fn add(
    layout: &mut Layout,
    source: &Source,
    file_systems: &[(Platform, Vec<u8>)],
) -> Result<Descriptor> {
    let mut manifests = Vec::new();
    for (platform, file_system) in file_systems {
        manifests.push(manifest(layout, source, *platform, file_system)?);
    }
    let index = ImageIndexBuilder::default()
        .schema_version(SCHEMA_VERSION)
        .media_type(MediaType::ImageIndex)
        .manifests(manifests)
        .annotations(about(source)?)
        .build()?;
    layout.add_json(MediaType::ImageIndex, &index)
}

/// One platform's manifest with its file system and configuration.
fn manifest(
    layout: &mut Layout,
    source: &Source,
    platform: Platform,
    file_system: &[u8],
) -> Result<Descriptor> {
    let architecture = Arch::from(platform.name());
    let layer = layout.add(MediaType::ImageLayerGzip, gzip(file_system)?)?;
    let run = ConfigBuilder::default()
        .user(USER)
        .env(ENVIRONMENT.map(str::to_owned))
        .entrypoint([ENTRY_POINT.to_owned()])
        .labels(about(source)?)
        .build()?;
    // The digest of the file system before compression.
    let content =
        RootFsBuilder::default().typ("layers").diff_ids([format!("sha256:{}", sha256(file_system))]);
    let history = HistoryBuilder::default().created(source.time_text()?).created_by("cargo xtask release");
    let configuration = ImageConfigurationBuilder::default()
        .created(source.time_text()?)
        .architecture(architecture.clone())
        .os(Os::Linux)
        .config(run)
        .rootfs(content.build()?)
        .history([history.build()?])
        .build()?;
    let manifest = ImageManifestBuilder::default()
        .schema_version(SCHEMA_VERSION)
        .media_type(MediaType::ImageManifest)
        .config(layout.add_json(MediaType::ImageConfig, &configuration)?)
        .layers([layer])
        .annotations(about(source)?)
        .build()?;
    let mut descriptor = layout.add_json(MediaType::ImageManifest, &manifest)?;
    let place = PlatformBuilder::default().architecture(architecture).os(Os::Linux).build()?;
    descriptor.set_platform(Some(place));
    Ok(descriptor)
}

/// The annotations that the OCI has defined for images, as far as they apply.
pub(crate) fn about(source: &Source) -> Result<HashMap<String, String>> {
    let facts = [
        ("created", source.time_text()?),
        ("licenses", "Apache-2.0".to_owned()),
        ("revision", source.commit.clone()),
        ("source", source.repository.clone()),
        ("title", "sluice".to_owned()),
        ("version", source.version.clone()),
    ];
    Ok(facts.map(|(key, value)| (format!("org.opencontainers.image.{key}"), value)).into())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Read;

    use oci_spec::image::{ImageConfiguration, ImageIndex, ImageManifest};

    use super::*;

    fn image() -> Vec<u8> {
        let mut layout = Layout::default();
        let systems =
            Platform::ALL.map(|platform| (platform, format!("files of {}", platform.name()).into_bytes()));
        let index = add(&mut layout, &Source::example(), &systems).unwrap();
        layout.finish(index, "1.2.3", 1_700_000_000).unwrap()
    }

    fn files_of(layout: &[u8]) -> BTreeMap<String, Vec<u8>> {
        let mut files = BTreeMap::new();
        for entry in tar::Archive::new(layout).entries().unwrap() {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().display().to_string();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            files.insert(path, content);
        }
        files
    }

    fn blob<'a>(files: &'a BTreeMap<String, Vec<u8>>, descriptor: &Descriptor) -> &'a [u8] {
        let digest = descriptor.as_digest_sha256().unwrap();
        let content = &files[&format!("blobs/sha256/{digest}")];
        assert_eq!(sha256(content), digest);
        assert_eq!(content.len() as u64, descriptor.size());
        content
    }

    #[test]
    fn every_descriptor_from_the_index_down_names_content_of_its_digest_and_size() {
        let files = files_of(&image());
        let root = ImageIndex::from_reader(&files["index.json"][..]).unwrap();
        let [entry] = &root.manifests()[..] else { panic!("{root:?}") };
        assert_eq!(
            entry.annotations().as_ref().unwrap()[&"org.opencontainers.image.ref.name".to_owned()],
            "1.2.3"
        );
        let index = ImageIndex::from_reader(blob(&files, entry)).unwrap();
        let mut reached = 1;
        for platform in index.manifests() {
            let manifest = ImageManifest::from_reader(blob(&files, platform)).unwrap();
            let configuration = ImageConfiguration::from_reader(blob(&files, manifest.config())).unwrap();
            let mut content = Vec::new();
            flate2::read::GzDecoder::new(blob(&files, &manifest.layers()[0]))
                .read_to_end(&mut content)
                .unwrap();
            assert_eq!(*configuration.rootfs().diff_ids(), [format!("sha256:{}", sha256(&content))]);
            let name = configuration.architecture().to_string();
            assert_eq!(content, format!("files of {name}").into_bytes());
            reached += 3;
        }
        let blobs = files.keys().filter(|path| path.starts_with("blobs/sha256/") && path.len() > 13);
        assert_eq!(blobs.count(), reached, "content that no descriptor names");
    }

    #[test]
    fn index_names_both_platforms() {
        let files = files_of(&image());
        let root = ImageIndex::from_reader(&files["index.json"][..]).unwrap();
        let index = ImageIndex::from_reader(blob(&files, &root.manifests()[0])).unwrap();
        let platforms: Vec<String> = index
            .manifests()
            .iter()
            .map(|manifest| manifest.platform().as_ref().unwrap())
            .map(|platform| format!("{}/{}", platform.os(), platform.architecture()))
            .collect();
        assert_eq!(platforms, ["linux/amd64", "linux/arm64"]);
    }

    #[test]
    fn two_layouts_of_the_same_content_have_the_same_bytes() {
        // The maps of annotations begin with new random keys each time.
        let first = image();
        assert!((0..20).all(|_| image() == first));
    }

    #[test]
    fn image_has_the_user_the_environment_and_the_program_of_the_dockerfile() {
        let dockerfile = include_str!("../../../Dockerfile");
        let (_, stage) = dockerfile.split_once("FROM scratch AS runtime").unwrap();
        let values = |instruction: &str| -> Vec<&str> {
            stage.lines().filter_map(|line| line.strip_prefix(instruction)).collect()
        };
        assert_eq!(values("ENV "), ENVIRONMENT);
        assert_eq!(values("USER "), [USER]);
        assert_eq!(values("ENTRYPOINT "), [format!("[\"{ENTRY_POINT}\"]")]);
    }
}
