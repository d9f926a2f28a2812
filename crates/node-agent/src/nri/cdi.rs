//! The devices in the node's CDI specifications. The runtime reads the same files when a container names a device.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// The kind that NVIDIA's tools write by default. Another kind of NVIDIA's GPUs serves where this one does not name a device.
const KIND: &str = "nvidia.com/gpu";
const OTHER_KIND: &str = ".nvidia.com/gpu";

/// The folders with CDI specifications.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CdiFolders(pub Vec<PathBuf>);

/// The part of a specification that says which devices it has.
#[derive(Debug, Deserialize)]
struct Specification {
    kind: String,
    devices: Vec<Device>,
}

#[derive(Debug, Deserialize)]
struct Device {
    name: String,
}

/// Why a runtime does not apply the CDI devices that a plugin names; `None` if it does.
///
/// containerd 1.7 and 2.0 read the field and ignore it: their containers would have no GPU. Of other runtimes it is not known.
pub(super) fn ignores_devices(runtime: &str) -> Option<String> {
    let version = runtime.strip_prefix("containerd ").map(|version| version.trim_start_matches('v'));
    let mut numbers = version.unwrap_or_default().split('.').map(|number| number.parse::<u32>().ok());
    let applies = (numbers.next().flatten(), numbers.next().flatten()) >= (Some(2), Some(1));
    (!applies).then(|| {
        format!(
            "{runtime} is not known to apply CDI devices of NRI plugins, expected containerd 2.1 or newer"
        )
    })
}

impl CdiFolders {
    /// The qualified name (`nvidia.com/gpu=GPU-…`) of each device, or the reason why a device has none.
    ///
    /// # Errors
    /// No specification names one of the devices.
    pub fn qualified(&self, names: &[String]) -> Result<Vec<String>, String> {
        let known = self.read();
        let find = |name: &String| {
            let named = known.iter().filter(|(_, device)| device == name);
            let kinds = named.map(|(kind, _)| kind);
            let kind = kinds.min_by_key(|kind| (*kind != KIND, (*kind).clone()));
            kind.map(|kind| format!("{kind}={name}")).ok_or_else(|| self.lacks(name))
        };
        names.iter().map(find).collect()
    }

    fn lacks(&self, name: &str) -> String {
        let folders: Vec<_> = self.0.iter().map(|folder| folder.display().to_string()).collect();
        format!(
            "no CDI specification in {} names the device {name} of kind {KIND}; `nvidia-ctk cdi generate \
             --device-name-strategy=uuid` writes one",
            folders.join(" or ")
        )
    }

    /// Kind and name of each device. Files that cannot be read have none, as for the runtime.
    fn read(&self) -> Vec<(String, String)> {
        let folders = self.0.iter().filter_map(|folder| fs::read_dir(folder).ok());
        let files = folders.flatten().filter_map(|item| Some(item.ok()?.path()));
        let specifications = files.filter_map(|file| specification(&file));
        let ours = specifications.filter(|spec| spec.kind == KIND || spec.kind.ends_with(OTHER_KIND));
        ours.flat_map(|spec| spec.devices.into_iter().map(move |device| (spec.kind.clone(), device.name)))
            .collect()
    }
}

fn specification(file: &Path) -> Option<Specification> {
    let extension = file.extension()?;
    if extension != "json" && extension != "yaml" {
        return None;
    }
    let text = fs::read_to_string(file).ok()?;
    // JSON is YAML.
    match serde_yaml::from_str(&text) {
        Ok(found) => Some(found),
        Err(why) => {
            tracing::warn!(file = %file.display(), %why, "a CDI specification cannot be read");
            None
        }
    }
}

#[cfg(test)]
mod tests;
