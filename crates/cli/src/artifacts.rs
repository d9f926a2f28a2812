//! Where the three build results lie: next to each other, wherever cargo put them.

use std::env;
use std::path::PathBuf;

use anyhow::{Context, bail};

/// Paths of what a run under the hook needs.
#[derive(Debug, Clone)]
pub(crate) struct Artifacts {
    /// This program.
    pub(crate) sluice: PathBuf,
    /// The hook, `libsluice.so`.
    pub(crate) hook: PathBuf,
    /// The simulator's driver library, `libcuda.so`.
    pub(crate) simulator: PathBuf,
}

impl Artifacts {
    /// Looks next to this program, for the simulator's library only if it is to be used.
    ///
    /// # Errors
    /// If something that is needed was not built.
    pub(crate) fn find(simulated: bool) -> anyhow::Result<Self> {
        let sluice = env::current_exe().context("cannot tell where this program lies")?;
        let found = Self {
            hook: sluice.with_file_name("libsluice.so"),
            simulator: sluice.with_file_name("libcuda.so"),
            sluice,
        };
        let needed = if simulated { &[&found.hook, &found.simulator][..] } else { &[&found.hook] };
        for library in needed {
            if !library.is_file() {
                bail!("{} is missing: build it with `cargo xtask build`", library.display());
            }
        }
        Ok(found)
    }
}
