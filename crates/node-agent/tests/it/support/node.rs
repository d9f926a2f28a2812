//! A node: kubelet's folder, a library, an inventory that a test can change, and the plugin.

use crate::fake_gpus::gpu;
use prometheus::Registry;
use sluice_node_agent::capacity::{self, NodeCapacity};
use sluice_node_agent::device_plugin::{self, Error, Metrics, Provision, Settings};
use sluice_node_agent::library::{Installed, Library};
use sluice_placement::inventory::NodeInventory;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub const SLOTS_PER_GPU: u32 = 4;

pub struct Node {
    pub folder: PathBuf,
    pub library: Installed,
    pub gpus: watch::Sender<NodeInventory>,
    _root: TempDir,
}

/// The plugin of one agent.
pub struct Agent {
    pub registered: watch::Receiver<bool>,
    pub registry: Registry,
    pub ended: JoinHandle<Result<(), Error>>,
    stop: CancellationToken,
}

impl Node {
    /// Two healthy GPUs.
    pub fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("device-plugins");
        fs::create_dir(&folder).unwrap();
        let source = root.path().join("libsluice.so");
        fs::write(&source, b"\x7fELF and more").unwrap();
        let library = Library::new(root.path().join("lib")).install(&source).unwrap();
        let (gpus, _) = watch::channel(NodeInventory::new(SLOTS_PER_GPU, vec![gpu(0), gpu(1)]));
        Self { folder, library, gpus, _root: root }
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.join("sluice.sock")
    }

    pub fn provision(&self) -> Provision {
        Provision::of(&self.library, Path::new("/run/sluice"))
    }

    pub fn start_agent(&self) -> Agent {
        self.start_agent_with(self.provision())
    }

    pub fn start_agent_with(&self, provision: Provision) -> Agent {
        let registry = Registry::new();
        let metrics = Metrics::register(&registry).unwrap();
        let settings = Settings { folder: self.folder.clone(), provision };
        let (sender, registered) = watch::channel(false);
        let stop = CancellationToken::new();
        let (published, capacity) = watch::channel(NodeCapacity::of(&self.gpus.borrow(), None));
        let gpus = self.gpus.subscribe();
        tokio::spawn(async move {
            let (_no_pods, assignments) = watch::channel(None);
            capacity::publish(published, gpus, assignments).await;
        });
        let run = device_plugin::run(settings, capacity, metrics, sender, stop.clone());
        Agent { registered, registry, ended: tokio::spawn(run), stop }
    }

    pub fn set_health(&self, index: usize, healthy: bool) {
        self.gpus.send_modify(|inventory| inventory.gpus[index].healthy = healthy);
    }
}

impl Agent {
    /// Waits until readiness reports this.
    pub async fn is_registered(&mut self, wanted: bool) {
        let waited = self.registered.wait_for(|registered| *registered == wanted);
        super::soon("registered to change", waited).await.unwrap();
    }

    /// Ends like after SIGTERM.
    pub async fn stop(self) -> Result<(), Error> {
        self.stop.cancel();
        self.end().await
    }

    /// The plugin's result.
    pub async fn end(self) -> Result<(), Error> {
        super::soon("the plugin's end", self.ended).await.unwrap()
    }

    /// Ends like after SIGKILL: nothing is cleaned up.
    pub async fn kill(self) {
        self.ended.abort();
        let _cancelled = self.ended.await;
    }

    /// The series as Prometheus reads them.
    pub fn scrape(&self) -> String {
        prometheus::TextEncoder::new().encode_to_string(&self.registry.gather()).unwrap()
    }
}
