//! The health of GPUs end to end: simulated GPUs, the simulator's `libnvidia-ml.so.1`, nvml-wrapper, watcher. A binary
//! of its own with one test, because it sets an environment variable of the process.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::env;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sluice_node_agent::gpus::driver::{GpuDriver, ScannedGpu};
use sluice_node_agent::gpus::xid::Class;
use sluice_node_agent::gpus::{
    ContextReserve, DriverPaths, Fault, GpuEvent, GpuWatch, Mig, NvmlDriver, Settings, watch,
};
use sluice_placement::inventory::NodeInventory;
use sluice_sim::client;
use sluice_sim::daemon::{DaemonConfig, Handle, spawn_thread};
use sluice_sim::identity::uuid_text;
use sluice_test_programs::Layout;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

const MEMORY: u64 = 16 << 30;
/// Without a MiB for each of four device slots.
const USABLE: u64 = MEMORY - (4 << 20);

/// The simulator's driver library.
fn library() -> PathBuf {
    let layout = Layout::of_this_test();
    layout.build(&["sluice-sim-cuda"]);
    layout.profile_dir.join("libcuda.so")
}

struct Node {
    dir: tempfile::TempDir,
    library: PathBuf,
}

impl Node {
    fn socket(&self, index: u8) -> PathBuf {
        self.dir.path().join(format!("gpu{index}"))
    }

    fn config(&self, index: u8) -> DaemonConfig {
        let mut config = DaemonConfig::at(self.socket(index));
        config.gpu.name = format!("Sluice Simulated H{index}");
        config.set_uuid([index + 1; 16]);
        config.gpu.memory_bytes = MEMORY;
        config.gpu.pci = format!("5117:{:02x}:00.0", index + 1).parse().unwrap();
        config.gpu.numa = Some(index.into());
        config.gpu.is_mig = index == 2;
        // The first two are linked with each other.
        config.gpu.links = if index < 2 {
            vec![format!("5117:{:02x}:00.0", 2 - index).parse().unwrap()]
        } else {
            Vec::new()
        };
        config
    }

    fn start(&self, index: u8) -> Handle {
        spawn_thread(self.config(index)).unwrap()
    }

    fn driver(&self) -> NvmlDriver {
        let sysfs = self.dir.path().join("sys");
        NvmlDriver::new(DriverPaths { library: Some(self.library.clone()), sysfs }, Mig::Off)
    }
}

fn uuid(index: u8) -> String {
    uuid_text([index + 1; 16])
}

/// Long enough for a busy machine; it only ends a test that hangs.
async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future)
        .await
        .unwrap_or_else(|_| panic!("never happened: {what}"))
}

async fn inventory_where(
    watched: &mut GpuWatch,
    what: &str,
    is_so: impl FnMut(&NodeInventory) -> bool,
) -> NodeInventory {
    soon(what, watched.inventory.wait_for(is_so)).await.unwrap().clone()
}

async fn news_where(
    events: &mut broadcast::Receiver<GpuEvent>,
    what: &str,
    mut is_it: impl FnMut(&GpuEvent) -> bool,
) -> GpuEvent {
    soon(what, async {
        loop {
            let one = events.recv().await.unwrap();
            if is_it(&one) {
                return one;
            }
        }
    })
    .await
}

fn is_healthy(inventory: &NodeInventory, index: u8) -> bool {
    inventory.gpu(&uuid(index)).is_some_and(|gpu| gpu.healthy)
}

fn reason(inventory: &NodeInventory, index: u8) -> &str {
    inventory.gpu(&uuid(index)).and_then(|gpu| gpu.unhealthy_reason.as_deref()).unwrap_or("healthy")
}

#[test]
fn health_follows_xids_losses_and_recoveries() {
    let node = Node { dir: tempfile::tempdir().unwrap(), library: library() };
    let sockets = [0, 1, 2].map(|index| node.socket(index).display().to_string()).join(",");
    // SAFETY: the only test of this program, and it has started no threads yet that could read the environment.
    unsafe { env::set_var("SLUICE_SIM_SOCKET", &sockets) };

    absent_library_is_named(&node);
    without_simulators_there_is_no_driver(&node);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(health_follows(&node));
}

fn absent_library_is_named(node: &Node) {
    let paths =
        DriverPaths { library: Some(PathBuf::from("/nowhere/libnvidia-ml.so.1")), ..DriverPaths::default() };
    let why = NvmlDriver::new(paths, Mig::Off).inventory().unwrap_err().to_string();
    assert!(why.contains("/nowhere/libnvidia-ml.so.1") && why.contains("No such file"), "{why}");
    assert!(node.library.is_file());
}

fn without_simulators_there_is_no_driver(node: &Node) {
    let why = node.driver().inventory().unwrap_err().to_string();
    assert_eq!(why, "the NVIDIA driver does not answer: NVIDIA driver is not loaded");
}

async fn health_follows(node: &Node) {
    let mut daemons: Vec<Handle> = [0, 1, 2].map(|index| node.start(index)).into();
    let settings = Settings {
        context_reserve: ContextReserve::PerSlot(1 << 20),
        slots_per_gpu: 4,
        scan_every: Duration::from_millis(20),
        good_scans: NonZeroU32::new(3).unwrap(),
        ..Settings::default()
    };
    let stop = CancellationToken::new();
    let mut watched =
        soon("the first scan", watch(Arc::new(node.driver()), settings, stop.clone(), |_| {})).await.unwrap();
    let mut events = watched.events.subscribe();
    soon("listening", watched.listens.wait_for(|listens| *listens)).await.unwrap();

    let inventory = watched.inventory.borrow().clone();
    let expected = |index: u8| sluice_placement::inventory::Gpu {
        uuid: uuid(index),
        index: index.into(),
        model: format!("Sluice Simulated H{index}"),
        memory_bytes: USABLE,
        memory_total_bytes: Some(MEMORY),
        host_memory_bytes: 0,
        numa: Some(index.into()),
        pci: format!("5117:{:02x}:00.0", index + 1),
        nvlink: vec![uuid(1 - index)],
        mig: None,
        healthy: true,
        unhealthy_reason: None,
    };
    assert_eq!(inventory, NodeInventory::new(4, vec![expected(0), expected(1)]));
    let skipped = watched.skipped.borrow().clone();
    assert_eq!((skipped.len(), skipped[0].uuid.clone(), &skipped[0].reason), (1, Some(uuid(2)), &Fault::Mig));

    // A program's own fault is reported and changes nothing.
    client::inject(&node.socket(0), 31).unwrap();
    let event =
        news_where(&mut events, "Xid 31", |events| matches!(events, GpuEvent::Xid { code: 31, .. })).await;
    assert_eq!(event, GpuEvent::Xid { uuid: Some(uuid(0)), code: 31, class: Class::Application });
    assert_eq!(*watched.inventory.borrow(), inventory);

    // Lost: the Xid identifies it although it no longer reports its identity. The other GPU stays.
    client::inject(&node.socket(1), 79).unwrap();
    let lost = inventory_where(&mut watched, "GPU 1 lost", |now| !is_healthy(now, 1)).await;
    assert_eq!((reason(&lost, 1), reason(&lost, 0)), ("Xid 79: GPU has fallen off the bus", "healthy"));
    assert_eq!(lost.device_slots(), 4);
    client::heal(&node.socket(1)).unwrap();
    let back = inventory_where(&mut watched, "GPU 1 back", |now| is_healthy(now, 1)).await;
    assert_eq!(back, inventory);
    let event =
        news_where(&mut events, "GPU 1 back", |events| matches!(events, GpuEvent::Healthy { .. })).await;
    assert!(
        matches!(event, GpuEvent::Healthy { uuid: id, was: Fault::Xid(79), after_ns } if id == uuid(1) && after_ns > 0)
    );

    // It answers but needs a reset: no number of good scans makes it healthy.
    client::inject(&node.socket(0), 48).unwrap();
    inventory_where(&mut watched, "GPU 0 broken", |now| reason(now, 0) == "Xid 48: double bit ECC error")
        .await;
    let asked = node.driver().inventory().unwrap();
    assert!(
        matches!(&asked[0], ScannedGpu::Known(gpu, sluice_node_agent::gpus::driver::Condition::Bad(_)) if gpu.uuid == uuid(0))
    );
    client::heal(&node.socket(0)).unwrap();
    inventory_where(&mut watched, "GPU 0 reset", |now| is_healthy(now, 0)).await;

    // A simulator ends and starts again with the same identity.
    daemons.remove(0);
    let gone = inventory_where(&mut watched, "GPU 0 gone", |now| !is_healthy(now, 0)).await;
    assert_eq!((gone.gpus.len(), gone.gpu(&uuid(0)).map(|gpu| gpu.memory_bytes)), (2, Some(USABLE)));
    daemons.push(node.start(0));
    inventory_where(&mut watched, "GPU 0 restarted", |now| *now == inventory).await;

    // When all simulators are gone the driver is unavailable; that ends too.
    daemons.clear();
    inventory_where(&mut watched, "all gone", |now| !is_healthy(now, 0) && !is_healthy(now, 1)).await;
    daemons.extend([0, 1, 2].map(|index| node.start(index)));
    inventory_where(&mut watched, "all back", |now| *now == inventory).await;
    stop.cancel();
    drop(daemons);
}
