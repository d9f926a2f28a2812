//! Paths of the programs and libraries that a test bed needs.

use std::path::{Path, PathBuf};

use anyhow::bail;

/// The build results. Cargo puts all of them into one directory.
#[derive(Debug, Clone)]
pub struct Artifacts {
    /// The program `sluice`, which contains the daemons and the load generators.
    pub sluice: PathBuf,
    /// The hook, `libsluice.so`.
    pub hook: PathBuf,
    /// The simulator's driver library, `libcuda.so`.
    pub simulator: PathBuf,
}

impl Artifacts {
    /// The libraries in the directory of `sluice`. The simulator's library is required only if the GPU is `simulated`.
    ///
    /// # Errors
    /// If a required library was not built.
    pub fn beside(sluice: &Path, simulated: bool) -> anyhow::Result<Self> {
        let found = Self {
            hook: sluice.with_file_name("libsluice.so"),
            simulator: sluice.with_file_name("libcuda.so"),
            sluice: sluice.to_owned(),
        };
        let required = if simulated { &[&found.hook, &found.simulator][..] } else { &[&found.hook] };
        for library in required {
            if !library.is_file() {
                bail!("{} is missing: build it with `cargo xtask build`", library.display());
            }
        }
        Ok(found)
    }
}
