//! Prints the GPUs that the agent sees on this machine, and their events for a while: `gpus [SECONDS]`.
#![allow(clippy::print_stdout, reason = "it is what the example is for")]

use std::sync::Arc;
use std::time::Duration;

use sluice_node_agent::gpus::{DriverPaths, Mig, NvmlDriver, Settings, watch};
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().init();
    let seconds = std::env::args().nth(1).map_or(Ok(5), |text| text.parse())?;
    let driver = Arc::new(NvmlDriver::new(DriverPaths::default(), Mig::Instances));
    let stop = CancellationToken::new();
    let Some(watched) = watch(driver, Settings::default(), stop.clone(), |_| {}).await else { return Ok(()) };
    println!("{}", serde_json::to_string_pretty(&*watched.inventory.borrow())?);
    println!("not shared: {:?}", *watched.skipped.borrow());
    let mut events = watched.events.subscribe();
    let print_events = async {
        while let Ok(one) = events.recv().await {
            println!("{one:?}");
        }
    };
    let _ = tokio::time::timeout(Duration::from_secs(seconds), print_events).await;
    println!("Xid events reach us: {}", *watched.listens.borrow());
    println!("{}", watched.inventory.borrow().to_annotation()?);
    stop.cancel();
    Ok(())
}
