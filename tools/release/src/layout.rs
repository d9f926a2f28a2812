//! An OCI image layout: content by digest, and an index that names what is in it.

use std::collections::{BTreeMap, HashMap};
use std::str::FromStr;

use anyhow::{Context, Result};
use oci_spec::image::{
    Descriptor, ImageIndexBuilder, MediaType, OciLayoutBuilder, SCHEMA_VERSION, Sha256Digest,
};
use serde::Serialize;

use crate::archive::Archive;
use crate::digest::sha256;

/// The annotation that gives an entry of the index its name, here the version.
const REFERENCE: &str = "org.opencontainers.image.ref.name";

/// Content by its SHA-256.
#[derive(Default)]
pub(crate) struct Layout {
    blobs: BTreeMap<String, Vec<u8>>,
}

impl Layout {
    /// Adds content and returns what names it.
    pub(crate) fn add(&mut self, media_type: MediaType, content: Vec<u8>) -> Result<Descriptor> {
        let digest = sha256(&content);
        let name = Sha256Digest::from_str(&digest).context("naming content by its digest")?;
        let descriptor = Descriptor::new(media_type, content.len() as u64, name);
        self.blobs.insert(digest, content);
        Ok(descriptor)
    }

    /// Adds a document.
    pub(crate) fn add_json(
        &mut self,
        media_type: MediaType,
        document: &impl Serialize,
    ) -> Result<Descriptor> {
        self.add(media_type, json(document)?)
    }

    #[cfg(test)]
    pub(crate) fn blobs(&self) -> impl Iterator<Item = &[u8]> {
        self.blobs.values().map(Vec::as_slice)
    }

    /// The layout as a tar archive whose index has one entry, named `reference`.
    pub(crate) fn finish(self, mut entry: Descriptor, reference: &str, time: u64) -> Result<Vec<u8>> {
        entry.set_annotations(Some(HashMap::from([(REFERENCE.to_owned(), reference.to_owned())])));
        let index = ImageIndexBuilder::default()
            .schema_version(SCHEMA_VERSION)
            .media_type(MediaType::ImageIndex)
            .manifests(vec![entry])
            .build()?;
        let layout = OciLayoutBuilder::default().image_layout_version("1.0.0".to_owned()).build()?;
        let mut archive = Archive::new(time);
        archive.add_folder("blobs")?;
        archive.add_folder("blobs/sha256")?;
        for (digest, content) in &self.blobs {
            archive.add_file(&format!("blobs/sha256/{digest}"), content)?;
        }
        archive.add_file("index.json", &json(&index)?)?;
        archive.add_file("oci-layout", &json(&layout)?)?;
        archive.finish()
    }
}

/// A document as JSON with sorted keys: the maps of the OCI types have a random order.
pub(crate) fn json(document: &impl Serialize) -> Result<Vec<u8>> {
    let mut value = serde_json::to_value(document).context("writing JSON")?;
    value.sort_all_objects();
    serde_json::to_vec(&value).context("writing JSON")
}
