//! `sluice scheduler`.

use std::process::ExitCode;

pub(crate) use sluice_scheduler::extender::Arguments;

/// Serves until a signal arrives.
pub(crate) fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    super::daemon(sluice_scheduler::extender::run(arguments))
}
