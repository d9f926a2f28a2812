//! Which versions of the library pods use.
//!
//! There are two sources, and a version is in use if either names it:
//!
//! * Kubelet's device checkpoint contains, for each container, the mounts that Allocate returned. Kubelet mounts
//!   exactly those again whenever the container restarts, also in a crash loop without a running process, and after a
//!   reboot. Allocate is not called again, so no record of ours could be more exact. The format is kubelet's own: if
//!   it cannot be read, that is an error, and nothing is collected.
//! * `/proc/PID/mountinfo` of all processes shows what is mounted now, also after an administrator deleted the
//!   checkpoint, which is a common remedy for kubelet's problems. Any user may read it, unlike `/proc/PID/maps`.
//!
//! Both exist outside the agent, so a restart of the agent loses nothing. Kubelet's PodResources API would name pods
//! and slots but not the mounts. A record of our own would cost a disk write in every Allocate.

use super::version::Version;
use crate::kubelet_checkpoint;
use k8s_openapi::ByteString;
use prost::Message;
use serde::Deserialize;
use sluice_placement::annotations::keys;
use sluice_proto::deviceplugin::ContainerAllocateResponse;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The two sources.
#[derive(Debug, Clone)]
pub struct Usage {
    /// The host's `/proc`. An agent with `hostPID` sees it as its own.
    pub proc: PathBuf,
    /// `/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint`.
    pub checkpoint: PathBuf,
}

/// Why it is unknown which versions are in use. All have to be kept then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UsageError {
    /// A source cannot be read. Kubelet writes its checkpoint when a plugin registers, so an absent one proves
    /// nothing.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Kubelet changed its format, or the file is damaged.
    #[error("do not understand kubelet's checkpoint {}: {why}", path.display())]
    Checkpoint {
        /// The file.
        path: PathBuf,
        /// What is wrong with its content.
        why: String,
    },
}

impl Usage {
    /// The versions that a pod has or will get again.
    ///
    /// # Errors
    /// A source cannot be read.
    pub fn versions(&self) -> Result<BTreeSet<Version>, UsageError> {
        self.versions_of(|_| true)
    }

    /// Like [`versions`](Self::versions), but kubelet's checkpoint counts only for pods whose uid `is_there` accepts.
    /// Kubelet drops ended pods from it only when it allocates devices again, which may never happen.
    ///
    /// # Errors
    /// A source cannot be read.
    pub fn versions_of(&self, is_there: impl Fn(&str) -> bool) -> Result<BTreeSet<Version>, UsageError> {
        let mut versions = self.allocated(is_there)?;
        self.add_mounted(&mut versions)?;
        Ok(versions)
    }

    /// The versions that kubelet would mount again.
    fn allocated(&self, is_there: impl Fn(&str) -> bool) -> Result<BTreeSet<Version>, UsageError> {
        let text = fs::read(&self.checkpoint).map_err(|source| self.unreadable(source))?;
        let entries: Vec<Entry> =
            kubelet_checkpoint::entries(&text).map_err(|why| self.unreadable_checkpoint(why.to_string()))?;
        let mut versions = BTreeSet::new();
        for entry in entries {
            if entry.resource != keys::RESOURCE || !is_there(&entry.pod) {
                continue;
            }
            let strange = |why| {
                self.unreadable_checkpoint(format!("pod {}, container {}: {why}", entry.pod, entry.container))
            };
            versions.extend(allocated_versions(&entry).map_err(strange)?);
        }
        Ok(versions)
    }

    /// Adds the versions that are mounted in any process's mount namespace.
    fn add_mounted(&self, versions: &mut BTreeSet<Version>) -> Result<(), UsageError> {
        let unreadable = |path: &Path| {
            let path = path.to_owned();
            move |source| UsageError::Read { path, source }
        };
        for item in fs::read_dir(&self.proc).map_err(unreadable(&self.proc))? {
            let item = item.map_err(unreadable(&self.proc))?;
            let is_process = item
                .file_name()
                .to_str()
                .is_some_and(|name| name.bytes().all(|digit| digit.is_ascii_digit()));
            if !is_process {
                continue;
            }
            let path = item.path().join("mountinfo");
            match fs::read_to_string(&path) {
                Ok(text) => versions.extend(mounted(&text)),
                Err(why) if has_ended(&why) => {}
                Err(why) => return Err(unreadable(&path)(why)),
            }
        }
        Ok(())
    }

    fn unreadable(&self, source: io::Error) -> UsageError {
        UsageError::Read { path: self.checkpoint.clone(), source }
    }

    fn unreadable_checkpoint(&self, why: String) -> UsageError {
        UsageError::Checkpoint { path: self.checkpoint.clone(), why }
    }
}

/// The versions that a container was given. Each of our answers names one, so none means that the entry was misread.
fn allocated_versions(entry: &Entry) -> Result<BTreeSet<Version>, String> {
    let answer =
        ContainerAllocateResponse::decode(entry.answer.0.as_slice()).map_err(|why| why.to_string())?;
    let versions: BTreeSet<_> =
        answer.mounts.iter().flat_map(|mount| Version::all_in(Path::new(&mount.host_path))).collect();
    if versions.is_empty() {
        Err("its mounts name no version of the library".to_owned())
    } else {
        Ok(versions)
    }
}

/// The versions that a mountinfo names, as the root of a mount (4th field) or as the mount point (5th).
fn mounted(mountinfo: &str) -> impl Iterator<Item = Version> + '_ {
    let places = mountinfo.lines().flat_map(|line| line.split(' ').skip(3).take(2));
    places.flat_map(|place| Version::all_in(Path::new(place)))
}

/// The process ended before the file was opened (no entry) or while it was read (ESRCH), or it is a zombie (EINVAL).
fn has_ended(why: &io::Error) -> bool {
    let codes = [nix::libc::ENOENT, nix::libc::ESRCH, nix::libc::EINVAL];
    why.raw_os_error().is_some_and(|code| codes.contains(&code))
}

/// What is needed of an entry of kubelet's checkpoint.
#[derive(Deserialize)]
struct Entry {
    #[serde(rename = "PodUID")]
    pod: String,
    #[serde(rename = "ContainerName")]
    container: String,
    #[serde(rename = "ResourceName")]
    resource: String,
    /// Deserialised by name, because an absent [`ByteString`] would be read as an empty one.
    #[serde(rename = "AllocResp", deserialize_with = "ByteString::deserialize")]
    answer: ByteString,
}
