//! `sluice serve`: starts the server of models, `python3 -m sluice.serve`, in place of this process.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use clap::Args;

/// What the server imports. The package `sluice` can be installed without the packages that its server needs.
const IMPORTS: &str = "import sluice.serve.service, sluice.serve.http_api, sluice.serve.grpc_api";

/// Flags of `sluice serve`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Flags of the server: --models FILE, --http HOST:PORT, --grpc HOST:PORT, --check
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "FLAGS")]
    flags: Vec<OsString>,
}

/// Becomes the server. Returns only if that fails.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let error = command(OsStr::new("python3"), &arguments.flags)?.exec();
    Err(error).context("cannot start python3")
}

/// The server's command, if `python` can import the server.
fn command(python: &OsStr, flags: &[OsString]) -> anyhow::Result<Command> {
    let tried = Command::new(python)
        .args(["-c", IMPORTS])
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {}", python.display()))?;
    let printed = String::from_utf8_lossy(&tried.stderr);
    ensure!(
        tried.status.success(),
        "{} cannot import the server: {}\nInstall it from Sluice's repository: pip install './python[serve]'",
        python.display(),
        printed.lines().last().unwrap_or("it printed no reason"),
    );
    let mut server = Command::new(python);
    server.args(["-m", "sluice.serve"]).args(flags);
    Ok(server)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(python: &str) -> anyhow::Result<Command> {
        command(OsStr::new(python), &["--models".into(), "models.yaml".into()])
    }

    #[test]
    fn flags_reach_the_server() {
        let server = made("true").unwrap();
        let words: Vec<_> = server.get_args().collect();
        assert_eq!(words, ["-m", "sluice.serve", "--models", "models.yaml"]);
    }

    #[test]
    fn error_names_the_package_if_it_cannot_be_imported() {
        let error = made("false").unwrap_err().to_string();
        assert!(error.contains("pip install './python[serve]'"), "{error}");
    }

    #[test]
    fn error_names_the_interpreter_if_there_is_none() {
        let error = made("/nonexistent/python3").unwrap_err().to_string();
        assert_eq!(error, "cannot start /nonexistent/python3");
    }
}
