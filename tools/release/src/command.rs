//! Programs that make parts of a release.

use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Runs a program to its end; its output goes to the terminal.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    ensure!(status.success(), "{command:?} failed: {status}");
    Ok(())
}

/// Runs a program to its end and returns what it printed.
pub(crate) fn output_of(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} failed: {}\n{errors}", output.status);
    String::from_utf8(output.stdout).with_context(|| format!("{command:?} printed no text"))
}
