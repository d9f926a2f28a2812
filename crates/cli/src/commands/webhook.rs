//! `sluice webhook`.

use std::process::ExitCode;

pub(crate) use sluice_scheduler::webhook::Arguments;

/// Serves until a signal arrives.
pub(crate) fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    super::daemon(sluice_scheduler::webhook::run(arguments))
}
