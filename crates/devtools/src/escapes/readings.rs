//! Readings of memory as the node agent reports them: what NVML shows of the pods' processes, every 400 ms, and when the manager asks.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sluice_proto::control::pod_manager_client::PodManagerClient;
use sluice_proto::control::{NextReadingRequest, ProcessMemory, ReportMemoryRequest};
use sluice_test_bed::SimulatedGpu;
use tokio::runtime::Runtime;
use tonic::transport::Endpoint;

/// Time between two readings.
const READ_EVERY: Duration = Duration::from_millis(400);

/// Uids of pods by the label of their processes.
type Pods = BTreeMap<&'static str, String>;

/// Readings that go to the manager until this is dropped.
#[derive(Debug)]
pub(super) struct MemoryReports {
    /// Dropping it ends its task.
    _runtime: Runtime,
}

impl MemoryReports {
    /// Begins to report to the manager with this control socket.
    pub(super) fn begin(control: &Path, gpu: SimulatedGpu, pods: Pods) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        // It ends with the manager.
        runtime.spawn(report(control.to_owned(), gpu, pods));
        Ok(Self { _runtime: runtime })
    }
}

async fn report(control: PathBuf, gpu: SimulatedGpu, pods: Pods) -> anyhow::Result<()> {
    let endpoint = Endpoint::from_shared(format!("unix://{}", control.display()))?;
    let mut manager = PodManagerClient::new(endpoint.connect().await?);
    let mut asked = manager.clone();
    let mut ticks = tokio::time::interval(READ_EVERY);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            answer = asked.next_reading(NextReadingRequest {}) => drop(answer?),
        }
        let begun = Instant::now();
        // The rows have what the simulated NVML lists.
        let rows = gpu.ledger()?.processes;
        let of_pods = rows.iter().filter(|row| !row.ended && row.reported_bytes > 0).filter_map(|row| {
            let (pod_uid, bytes) = (pods.get(row.label.as_str())?.clone(), Some(row.reported_bytes));
            Some(ProcessMemory { pid: row.pid, pod_uid, bytes })
        });
        let processes = of_pods.collect();
        let age_ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        manager
            .report_memory(ReportMemoryRequest { age_ns, processes, failed: false, energy_mj: None })
            .await?;
    }
}
