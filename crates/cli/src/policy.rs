//! `sluice policy`: checks a policy file as a pod-manager does, and prints the settings that follow from it.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::{Context, anyhow};
use clap::Args;
use sluice_pod_manager::{Config, describe_policy, policy_schema};

/// Flags of `sluice policy`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// File to check; it is compared with the defaults of a manager's flags
    #[arg(required_unless_present = "schema")]
    file: Option<PathBuf>,
    /// Print the JSON schema of policy files
    #[arg(long, conflicts_with = "file")]
    schema: bool,
}

/// Checks a file and prints all settings, those of the file and defaults, or prints the schema.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let Some(path) = &arguments.file else {
        return Ok(writeln!(io::stdout(), "{:#}", policy_schema())?);
    };
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let config = Config::new("", "").with_policy(&text);
    let config = config.map_err(|mistakes| anyhow!("policy file {}: {mistakes}", path.display()))?;
    Ok(write!(io::stdout(), "{}", describe_policy(&config))?)
}
