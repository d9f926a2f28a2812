//! What the processes of a failed soak do: their threads, and what the simulator counts. Taken before any of them is ended.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Context;

use super::census::{ProcessFacts, processes_of};
use super::tenant_node::TenantNode;

/// The file of the description, beside the logs.
const FILE: &str = "failure.log";

/// Writes the states of all processes and the simulator's ledger into the soak's folder, then runs `command` with the folder as its
/// argument, if one is given.
pub(super) fn record(node: &impl TenantNode, command: Option<&Path>) -> anyhow::Result<()> {
    let folder = node.folder();
    let mut text: String = processes_of(&folder).iter().map(describe).collect();
    match node.gpu().ledger() {
        Ok(ledger) => text += &format!("{ledger:#?}\n"),
        Err(why) => text += &format!("no ledger: {why:#}\n"),
    }
    text += &format!("{:#?}\n", node.metrics());
    fs::write(folder.join(FILE), text).context("cannot write what the processes do")?;
    let Some(command) = command else { return Ok(()) };
    let status = Command::new(command).arg(&folder).stdin(Stdio::null()).status();
    let status = status.with_context(|| format!("cannot start {}", command.display()))?;
    anyhow::ensure!(status.success(), "{} ended with {status}", command.display());
    Ok(())
}

/// A process and its threads: name, state, kernel function and system call in which the thread waits, and its times by schedstat in
/// nanoseconds: on a processor, and ready to run without one.
fn describe(process: &ProcessFacts) -> String {
    let ProcessFacts { pid, parent, state, command } = process;
    let mut text = format!("process {pid} of {parent}, state {state}: {command}\n");
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return text };
    for thread in threads.flatten() {
        text += &describe_thread(&thread.path());
    }
    text
}

fn describe_thread(folder: &Path) -> String {
    let read = |name: &str| -> io::Result<String> { fs::read_to_string(folder.join(name)) };
    let word = |name: &str| read(name).map_or_else(|why| format!("({why})"), |text| text.trim().to_owned());
    let stat = word("stat");
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().next()).unwrap_or("?");
    let (name, id) = (word("comm"), folder.file_name().unwrap_or_default().to_string_lossy());
    let (waits_in, call, times) = (word("wchan"), word("syscall"), word("schedstat"));
    format!("  thread {id} {name}: state={state} wchan={waits_in} syscall=[{call}] schedstat=[{times}]\n")
}

#[cfg(test)]
mod tests;
