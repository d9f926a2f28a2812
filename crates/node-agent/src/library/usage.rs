//! Which versions of the library pods have.
//!
//! Two witnesses, and a version is in use if either says so:
//!
//! * Kubelet's device checkpoint holds, for each container, the mounts that Allocate once returned, and kubelet mounts
//!   exactly those again whenever the container restarts, also in a crash loop when no process of it lives, and after a
//!   reboot. Allocate is not asked again, so no record of ours could be more exact. Its format is kubelet's own: if we do not
//!   understand it we say so, and nothing is collected.
//! * `/proc/PID/mountinfo` of all processes: what is mounted now, also if somebody deleted the checkpoint, which is a
//!   common remedy for kubelet's troubles. Everybody may read it, unlike `/proc/PID/maps`.
//!
//! Both live outside the agent, so its restart loses nothing. PodResources would name the pods and their seats but not
//! what they were given; a record of that by us would cost a disk write in every Allocate.

use super::version::Version;
use k8s_openapi::ByteString;
use prost::Message;
use serde::Deserialize;
use sluice_proto::deviceplugin::ContainerAllocateResponse;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Where to look.
#[derive(Debug, Clone)]
pub struct Usage {
    /// `/proc` of the host, which an agent with `hostPID` has as its own.
    pub proc: PathBuf,
    /// `/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint`.
    pub checkpoint: PathBuf,
    /// The resource whose containers get the library.
    pub resource: String,
}

/// Why it cannot be said which versions are in use. All of them have to be kept then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UsageError {
    /// A witness cannot be read. Kubelet writes its checkpoint when a plugin registers, so an absent one is no answer.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Kubelet has changed its format, or the file is damaged.
    #[error("do not understand kubelet's checkpoint {}: {why}", path.display())]
    Checkpoint {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

impl Usage {
    /// The versions that a pod has or will get again.
    ///
    /// # Errors
    /// It cannot be known.
    pub fn versions(&self) -> Result<BTreeSet<Version>, UsageError> {
        self.versions_of(|_| true)
    }

    /// As [`versions`](Self::versions), but kubelet's checkpoint counts only for pods whose uid is there: kubelet forgets
    /// pods that have ended no sooner than it hands out devices again, which may be never.
    ///
    /// # Errors
    /// It cannot be known.
    pub fn versions_of(&self, is_there: impl Fn(&str) -> bool) -> Result<BTreeSet<Version>, UsageError> {
        let mut versions = self.allocated(is_there)?;
        self.add_mounted(&mut versions)?;
        Ok(versions)
    }

    /// What kubelet would mount again.
    fn allocated(&self, is_there: impl Fn(&str) -> bool) -> Result<BTreeSet<Version>, UsageError> {
        let text = fs::read(&self.checkpoint).map_err(|source| self.unreadable(source))?;
        // Its checksum is a hash of Go's printed structures, which only Go can compute. Kubelet writes the file whole or
        // not at all, and what is damaged is no JSON or no message.
        let checkpoint: Checkpoint =
            serde_json::from_slice(&text).map_err(|why| self.strange(why.to_string()))?;
        let mut versions = BTreeSet::new();
        for entry in checkpoint.data.entries.unwrap_or_default() {
            if entry.resource != self.resource || !is_there(&entry.pod) {
                continue;
            }
            let strange =
                |why| self.strange(format!("pod {}, container {}: {why}", entry.pod, entry.container));
            versions.extend(given(&entry).map_err(strange)?);
        }
        Ok(versions)
    }

    /// What is mounted in any process's view of the file system.
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

    fn strange(&self, why: String) -> UsageError {
        UsageError::Checkpoint { path: self.checkpoint.clone(), why }
    }
}

/// The versions that a container was given. There is one in every answer of ours: none means that we misread it.
fn given(entry: &Entry) -> Result<BTreeSet<Version>, String> {
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

/// The versions that a mountinfo names, as what is mounted (4th field) or where (5th).
fn mounted(mountinfo: &str) -> impl Iterator<Item = Version> + '_ {
    let places = mountinfo.lines().flat_map(|line| line.split(' ').skip(3).take(2));
    places.flat_map(|place| Version::all_in(Path::new(place)))
}

/// The process ended before we came (no entry), while we read (ESRCH), or waits to be reaped (EINVAL).
fn has_ended(why: &io::Error) -> bool {
    let codes = [nix::libc::ENOENT, nix::libc::ESRCH, nix::libc::EINVAL];
    why.raw_os_error().is_some_and(|code| codes.contains(&code))
}

/// Kubelet's `checkpoint.Data` (pkg/kubelet/cm/devicemanager/checkpoint), as far as we need it.
#[derive(Deserialize)]
struct Checkpoint {
    #[serde(rename = "Data")]
    data: Entries,
}

#[derive(Deserialize)]
struct Entries {
    /// `null` when there are none. The field itself must be there, or the format is another one.
    #[serde(rename = "PodDeviceEntries", deserialize_with = "Option::deserialize")]
    entries: Option<Vec<Entry>>,
}

#[derive(Deserialize)]
struct Entry {
    #[serde(rename = "PodUID")]
    pod: String,
    #[serde(rename = "ContainerName")]
    container: String,
    #[serde(rename = "ResourceName")]
    resource: String,
    /// By name, because a [`ByteString`] that is absent would be an empty one.
    #[serde(rename = "AllocResp", deserialize_with = "ByteString::deserialize")]
    answer: ByteString,
}
