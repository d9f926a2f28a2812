//! How the simulated driver library is laid out so that a loader finds it under the names of the real ones.

use std::io;
use std::path::{Path, PathBuf};

/// Names under which programs look for the driver and for NVML.
pub const NAMES: [&str; 4] = ["libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1", "libnvidia-ml.so"];

/// Makes `dir` a directory for LD_LIBRARY_PATH: links from every name to `built`, the library of `sluice-sim-cuda`.
///
/// Links that are there already are replaced. Returns `dir`.
///
/// # Errors
/// Those of the file system, among them that `built` does not exist.
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
mod tests {
    use super::*;

    #[test]
    fn every_name_links_to_the_library_also_the_second_time() {
        let dir = tempfile::tempdir().unwrap();
        let built = dir.path().join("built.so");
        std::fs::write(&built, b"x").unwrap();
        for _ in 0..2 {
            let laid = lay_out(&dir.path().join("lib"), &built).unwrap();
            for name in NAMES {
                assert_eq!(std::fs::read(laid.join(name)).unwrap(), b"x");
            }
        }
    }

    #[test]
    fn missing_library_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        assert!(lay_out(dir.path(), &dir.path().join("none")).is_err());
    }
}
