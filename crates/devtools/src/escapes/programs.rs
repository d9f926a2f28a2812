//! The programs of the attempts, compiled at the first use.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use sluice_test_bed::Artifacts;
use tempfile::TempDir;

/// The build results and the compiler's output.
#[derive(Debug)]
pub(super) struct Programs {
    pub(super) artifacts: Artifacts,
    repository: PathBuf,
    /// A folder with the simulator as `libcuda.so.1`; `None`: the GPU and its driver are real.
    driver: Option<PathBuf>,
    folder: TempDir,
}

impl Programs {
    /// The build results beside this program, and the sources of the repository.
    pub(super) fn beside_this_program(repository: &Path, simulated: bool) -> anyhow::Result<Self> {
        let sluice =
            std::env::current_exe().context("cannot find this program's path")?.with_file_name("sluice");
        let artifacts = Artifacts::beside(&sluice, simulated)?;
        let repository = fs::canonicalize(repository).context("cannot find the repository")?;
        let folder = tempfile::Builder::new().prefix("sluice-escapes-").tempdir()?;
        let driver = simulated.then(|| folder.path().join("driver"));
        if let Some(driver) = &driver {
            sluice_sim::library::lay_out(driver, &artifacts.simulator)
                .context("cannot lay out the simulator")?;
        }
        Ok(Self { artifacts, repository, driver, folder })
    }

    /// Whether the GPU is simulated.
    pub(super) fn are_simulated(&self) -> bool {
        self.driver.is_some()
    }

    /// The executable made from `tests/escapes/programs/NAME.c`. If there is a `NAME_plugin.c`, it becomes `libNAME_plugin.so` beside it.
    pub(super) fn compiled(&self, name: &str) -> anyhow::Result<PathBuf> {
        let program = self.folder.path().join(name);
        if program.exists() {
            return Ok(program);
        }
        let plugin = self.source(&format!("{name}_plugin"));
        if plugin.exists() {
            let library = self.folder.path().join(format!("lib{name}_plugin.so"));
            self.compile(&plugin, &library, &["-shared", "-fPIC"])?;
        }
        self.compile(&self.source(name), &program, &[])?;
        Ok(program)
    }

    fn source(&self, name: &str) -> PathBuf {
        self.repository.join("tests/escapes/programs").join(format!("{name}.c"))
    }

    fn compile(&self, source: &Path, output: &Path, flags: &[&str]) -> anyhow::Result<()> {
        let mut cc = Command::new("cc");
        cc.args([
            "-std=gnu11",
            "-O1",
            "-g",
            "-pthread",
            "-Wall",
            "-Wextra",
            "-Wno-missing-field-initializers",
        ]);
        cc.args(flags).arg("-I").arg(self.repository.join("tests/preload/programs"));
        cc.arg("-o").arg(output).arg(source);
        cc.args(self.driver.iter().map(|driver| format!("-L{}", driver.display())));
        cc.args(["-Wl,--no-as-needed", "-l:libcuda.so.1", "-ldl"]);
        let output = cc.output().with_context(|| format!("cannot start {cc:?}"))?;
        if !output.status.success() {
            bail!("{} does not compile:\n{}", source.display(), String::from_utf8_lossy(&output.stderr));
        }
        Ok(())
    }
}
