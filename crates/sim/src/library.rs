//! The directory in which a loader finds the simulated driver library under the names of the real libraries.

use std::io;
use std::path::{Path, PathBuf};

/// Names under which programs look for the driver and for NVML.
pub const NAMES: [&str; 4] = ["libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1", "libnvidia-ml.so"];

/// Makes `dir` a directory for LD_LIBRARY_PATH: links from every name to `built`, the library of `sluice-sim-cuda`.
///
/// Existing links are replaced. Returns `dir`.
/// Errors: those of the file system, for example if `built` does not exist.
pub fn lay_out(dir: &Path, built: &Path) -> io::Result<PathBuf> {
    let target = built.canonicalize()?;
    std::fs::create_dir_all(dir)?;
    for name in NAMES {
        let link = dir.join(name);
        match std::fs::remove_file(&link) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => std::os::unix::fs::symlink(&target, &link)?,
        }
    }
    Ok(dir.to_path_buf())
}

#[cfg(test)]
mod tests;
