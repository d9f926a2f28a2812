//! A simulated GPU at the socket named by the first argument; prints its ledger when standard input ends.
#![forbid(unsafe_code)]
use sluice_sim::{client, daemon};
use std::io::Read;

fn main() -> std::io::Result<()> {
    let socket = std::env::args().nth(1).unwrap_or_else(|| "/tmp/sluice-sim".into());
    let handle = daemon::spawn_thread(daemon::DaemonConfig::at(socket))?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    eprintln!("{}", serde_json::to_string_pretty(&client::ledger(handle.socket())?)?);
    Ok(())
}
