//! `sluice node-agent`.

use std::process::ExitCode;

pub(crate) use sluice_node_agent::Arguments;

/// Serves until a signal arrives.
pub(crate) fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    super::daemon(sluice_node_agent::run(arguments))
}
