//! The CDI device of what each container with a GPU gets beside the GPU: the hook's library, the preload file, the managers' sockets.

use std::fs;
use std::io;
use std::path::Path;

use serde_json::{Value, json};

use crate::device_plugin::Provision;
use crate::nri::{VISIBLE_DEVICES, VOID};

/// The device's qualified name. It has no version: a container that is created again gets the library of the present agent.
pub(super) const QUALIFIED: &str = "sluice.dev/library=current";
const KIND: &str = "sluice.dev/library";
const NAME: &str = "current";
const FILE: &str = "sluice.dev-library.json";

/// Writes the specification into a folder of CDI specifications, in place of an earlier one.
///
/// # Errors
/// The folder cannot be written.
pub(crate) fn write(folder: &Path, provision: &Provision) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    // The runtime reads files that end in .json or .yaml.
    let unfinished = folder.join(format!(".{FILE}.new"));
    fs::write(&unfinished, specification(provision).to_string())?;
    fs::rename(unfinished, folder.join(FILE))
}

fn specification(provision: &Provision) -> Value {
    let mounts = provision.mounts().iter().map(|mount| {
        json!({
            "hostPath": mount.host_path, "containerPath": mount.container_path, "type": "bind",
            "options": ["rbind", "rprivate", "ro"],
        })
    });
    // NVIDIA's container runtime then adds no GPU to those that CDI brings.
    let mut environment = vec![format!("{VISIBLE_DEVICES}={VOID}")];
    environment.extend(provision.environment().iter().map(|(key, value)| format!("{key}={value}")));
    environment.sort();
    let edits = json!({"env": environment, "mounts": mounts.collect::<Vec<_>>()});
    json!({"cdiVersion": "0.5.0", "kind": KIND, "devices": [{"name": NAME, "containerEdits": edits}]})
}
