//! Whether the dynamic loader of a pod would load the library from its folder on the host.

use std::path::Path;

use nix::sys::statvfs::{FsFlags, statvfs};

use super::files::{Error, Result};

/// Why the loader would ignore a library in this folder; `None` if it would load it.
///
/// The loader maps a library as executable. The kernel refuses this on a mount with the flag `noexec`, and the loader then ignores the
/// preloaded library: the program runs without limits. A pod's bind mount takes the flag from the mount of the host. The agent sees the
/// folder through such a bind mount of its own, which the same container runtime made. runc drops the flag when it makes a bind mount
/// read-only, but not in a user namespace, so the flag of the agent's mount is taken as the pod's.
///
/// # Errors
/// The mount cannot be examined.
pub fn loader_refusal(folder: &Path) -> Result<Option<String>> {
    let mount = statvfs(folder).map_err(|why| Error::disk("examine the mount of", folder)(why.into()))?;
    let is_noexec = mount.flags().contains(FsFlags::ST_NOEXEC);
    Ok(is_noexec.then(|| {
        format!(
            "{} is on a mount with the flag noexec, so programs in pods would ignore the library and run without limits: set the chart \
             value nodeAgent.hostPaths.state (--state-folder) to a folder from which programs can be executed",
            folder.display()
        )
    }))
}
