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

/// What the specifications have of the devices that were asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Devices {
    /// The qualified names (`nvidia.com/gpu=GPU-…`).
    pub(super) qualified: Vec<String>,
    /// Why the other devices have none; `None` if all have one.
    pub(super) missing: Option<String>,
}

/// Why a runtime is not known to apply the CDI devices that a plugin names; `None` if it is.
///
/// containerd 1.7 and 2.0 read the field and ignore it: their containers would have no GPU. Of other runtimes it is not known.
pub(super) fn unsupported_reason(runtime: &str) -> Option<String> {
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
    pub(crate) fn qualified(&self, names: &[String]) -> Result<Vec<String>, String> {
        let found = self.find(names);
        found.missing.map_or(Ok(found.qualified), Err)
    }

    /// The qualified names of those devices that have one, and the reason why the others have none.
    pub(super) fn find(&self, names: &[String]) -> Devices {
        let (known, broken) = self.read();
        let kind_of = |name: &str| {
            let named = known.iter().filter(|(_, device)| device == name);
            named.map(|(kind, _)| kind.as_str()).min_by_key(|kind| (*kind != KIND, *kind))
        };
        let (mut qualified, mut missing) = (Vec::new(), Vec::new());
        for name in names {
            match kind_of(name) {
                Some(kind) => qualified.push(format!("{kind}={name}")),
                None => missing.push(name.as_str()),
            }
        }
        let missing = (!missing.is_empty()).then(|| self.no_device_message(&missing, &broken));
        Devices { qualified, missing }
    }

    fn no_device_message(&self, names: &[&str], broken: &[String]) -> String {
        let folders: Vec<_> = self.0.iter().map(|folder| folder.display().to_string()).collect();
        let mut message = format!(
            "no CDI specification in {} names the device {} of kind {KIND}; `nvidia-ctk cdi generate \
             --device-name-strategy=uuid` writes one",
            folders.join(" or "),
            names.join(" or ")
        );
        for file in broken {
            message.push_str("; ");
            message.push_str(file);
        }
        message
    }

    /// Kind and name of each device, and the files that cannot be read. Those have no device, as for the runtime.
    fn read(&self) -> (Vec<(String, String)>, Vec<String>) {
        let folders = self.0.iter().filter_map(|folder| fs::read_dir(folder).ok());
        let files = folders.flatten().filter_map(|item| Some(item.ok()?.path()));
        let (mut known, mut broken) = (Vec::new(), Vec::new());
        for file in files.filter(|file| is_specification(file)) {
            match specification(&file) {
                Ok(spec) if spec.kind == KIND || spec.kind.ends_with(OTHER_KIND) => {
                    known.extend(spec.devices.into_iter().map(|device| (spec.kind.clone(), device.name)));
                }
                Ok(_) => {}
                Err(why) => broken.push(format!("{} cannot be read: {why}", file.display())),
            }
        }
        // A folder lists its files in any order, and a message that changes would count as news.
        broken.sort();
        (known, broken)
    }
}

fn is_specification(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "json" || extension == "yaml")
}

fn specification(file: &Path) -> Result<Specification, String> {
    let text = fs::read_to_string(file).map_err(|why| why.to_string())?;
    // JSON is YAML.
    serde_yaml::from_str(&text).map_err(|why| why.to_string())
}

#[cfg(test)]
mod tests;
