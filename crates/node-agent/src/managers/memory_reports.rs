//! Readings of the memory of processes on a GPU and of its energy, sent to its manager each 400 ms. NVML names a process by its pid; its cgroup names the
//! pod.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sluice_core::pod_cgroup::pod_of;
use sluice_proto::control::{ExceededLimit, ProcessMemory, ReportMemoryRequest};
use tokio::time::MissedTickBehavior;
use tracing::info;

use super::control_client;
use crate::gpus::driver::{DriverUnavailable, GpuDriver};
use crate::node::events::{EventQueue, Reason, about_pod};
use crate::pods::PodsWatch;

/// Time between two readings.
const READ_EVERY: Duration = Duration::from_millis(400);
/// The same if a process waits for a reading. A tenant may start any number of processes, and a reading takes locks of the driver.
const READ_SPACING: Duration = Duration::from_millis(20);
/// How long a manager may take to apply a reading. Later the reading is outdated.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// What readings are taken from, and where exceeded limits are reported.
#[derive(Clone)]
pub struct MemoryReports {
    /// The driver.
    pub gpus: Arc<dyn GpuDriver>,
    /// The /proc of the node.
    pub proc: PathBuf,
    /// The node's pods.
    pub pods: PodsWatch,
    /// The queue of Kubernetes events.
    pub events: EventQueue,
}

impl fmt::Debug for MemoryReports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryReports").field("proc", &self.proc).finish_non_exhaustive()
    }
}

impl MemoryReports {
    /// Sends the readings of one GPU to the manager at this control socket, for ever.
    pub(super) async fn send_all(self, gpu: String, socket: PathBuf) {
        let mut ticks = tokio::time::interval(READ_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut published = PublishedLimits::default();
        let mut failure = None;
        // Without an answer the manager has its readings all the same.
        let mut wanted = std::pin::pin!(control_client::next_reading(&socket));
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                answer = &mut wanted => {
                    wanted.set(control_client::next_reading(&socket));
                    if !matches!(answer, Ok(true)) {
                        ticks.tick().await;
                    }
                }
            }
            let begun = Instant::now();
            let (read, energy_mj) = self.read(&gpu).await;
            let is_failed = read.is_err();
            let why = read.as_ref().err().cloned();
            if let Some(why) = why.as_ref().filter(|why| failure.as_ref() != Some(*why)) {
                info!(gpu, %why, "memory of processes cannot be read, limits cover charges and the last overhead only");
            }
            failure = why;
            let processes = read.unwrap_or_default();
            let age_ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
            let request = ReportMemoryRequest { age_ns, processes, failed: is_failed, energy_mj };
            // A manager that does not answer is watched by its reconciler; the next reading replaces this one.
            if let Ok(exceeded) = control_client::report_memory(&socket, request.clone(), ANSWER_WITHIN).await
            {
                self.publish(published.update(&request, &exceeded));
            }
            tokio::time::sleep(READ_SPACING.saturating_sub(begun.elapsed())).await;
        }
    }

    /// The processes of pods on a GPU, and the energy that it has drawn in all, millijoules.
    async fn read(&self, gpu: &str) -> (Result<Vec<ProcessMemory>, DriverUnavailable>, Option<u64>) {
        let (gpus, proc, gpu) = (Arc::clone(&self.gpus), self.proc.clone(), gpu.to_owned());
        let read = tokio::task::spawn_blocking(move || {
            let of_pod = |process: sluice_process_memory::ProcessMemory| {
                let pod_uid = pod_of_process(&proc, process.pid)?;
                Some(ProcessMemory { pid: process.pid, pod_uid, bytes: process.bytes })
            };
            let processes = gpus.process_memory(&gpu);
            let of_pods = processes.map(|processes| processes.into_iter().filter_map(of_pod).collect());
            (of_pods, gpus.energy_mj(&gpu))
        });
        let panicked = |error| (Err(DriverUnavailable(format!("the query panicked: {error}"))), None);
        read.await.unwrap_or_else(panicked)
    }

    /// Publishes an event on each of these pods.
    fn publish(&self, exceeded: Vec<&ExceededLimit>) {
        let pods = self.pods.borrow().clone().unwrap_or_default();
        for (one, pod) in exceeded.into_iter().filter_map(|one| Some((one, pods.get(&one.pod_uid)?))) {
            self.events.publish(about_pod(pod), Reason::GpuMemoryLimitReached, note(one));
        }
    }
}

/// The pods whose limit was exceeded in their last usable reading.
#[derive(Debug, Default)]
struct PublishedLimits(BTreeSet<String>);

impl PublishedLimits {
    /// Applies the manager's answer to a reading. Returns the limits that were not exceeded before. A pod keeps its state if the driver did
    /// not report the memory of all its processes: the manager did not compare its charges.
    fn update<'a>(
        &mut self,
        reading: &ReportMemoryRequest,
        exceeded: &'a [ExceededLimit],
    ) -> Vec<&'a ExceededLimit> {
        let new = exceeded.iter().filter(|one| !self.0.contains(&one.pod_uid)).collect();
        if !reading.failed {
            let not_compared = |pod: &String| {
                reading.processes.iter().any(|process| process.bytes.is_none() && process.pod_uid == *pod)
            };
            self.0.retain(not_compared);
            self.0.extend(exceeded.iter().map(|one| one.pod_uid.clone()));
        }
        new
    }
}

/// The text of the event, for the pod's owner.
fn note(one: &ExceededLimit) -> String {
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    format!(
        "the memory limit is {} MiB, and contexts, modules and other memory without charge take {} MiB (process {}: {} MiB in total): \
         every allocation is refused; request more memory",
        mib(one.limit_bytes),
        mib(one.overhead_bytes),
        one.pid,
        mib(one.process_bytes)
    )
}

/// The pod in whose cgroup a process is; `None` also if the process has ended.
fn pod_of_process(proc: &Path, pid: i32) -> Option<String> {
    let text = std::fs::read_to_string(proc.join(pid.to_string()).join("cgroup")).ok()?;
    pod_of(&text).ok().map(|pod| pod.uid)
}

#[cfg(test)]
mod tests;
