//! The prepared claims on disk, so that a restart of the agent loses none.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use crate::prepared_claims::PreparedClaims;

const FILE: &str = "claims.json";
/// Version of the format. It changes when an older agent would misread the file.
const VERSION: u32 = 1;

/// The file.
#[derive(Debug, Clone)]
pub(crate) struct Checkpoint(PathBuf);

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    version: u32,
    claims: PreparedClaims,
}

impl Checkpoint {
    /// In the agent's state folder.
    pub(crate) fn in_folder(folder: &Path) -> Self {
        Self(folder.join(FILE))
    }

    /// The claims of the last write; none if there was none.
    ///
    /// # Errors
    /// The file cannot be read, or is of another format: going on would take their shares from running pods.
    pub(crate) fn read(&self) -> anyhow::Result<PreparedClaims> {
        let shown = self.0.display();
        let text = match fs::read(&self.0) {
            Ok(text) => text,
            Err(why) if why.kind() == ErrorKind::NotFound => return Ok(PreparedClaims::new()),
            Err(why) => {
                return Err(why).with_context(|| format!("cannot read the prepared claims in {shown}"));
            }
        };
        let content: Content = serde_json::from_slice(&text).with_context(|| {
            format!("{shown} is no list of prepared claims; remove it when no pod of this node has a claim")
        })?;
        if content.version != VERSION {
            bail!("{shown} has the version {}, expected {VERSION}", content.version);
        }
        Ok(content.claims)
    }

    /// Replaces the file. After an error the claims of the last write remain.
    pub(crate) fn write(&self, claims: &PreparedClaims) -> io::Result<()> {
        let text = serde_json::to_vec(&Content { version: VERSION, claims: claims.clone() })?;
        let unfinished = self.0.with_extension("new");
        let mut file = File::create(&unfinished)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&unfinished, &self.0)?;
        self.0.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
    }
}

#[cfg(test)]
mod tests;
