//! Queries the driver and publishes the results. It scans at intervals and after each relevant event, and waits for
//! Xids on a thread of its own. No driver call is made on a thread of the runtime.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use sluice_placement::inventory::NodeInventory;
use tokio::sync::{broadcast, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::context_reserve::ContextReserve;
use super::driver::{DriverEvent, DriverUnavailable, GpuDriver, ScannedGpu};
use super::host_memory::HostMemory;
use super::registry::{GpuEvent, GpuRegistry, Scan, ScanPurpose, Skipped};
use super::xid::{self, Class, Policy};
use super::xid_events::{self, ListenerMessage};
use crate::tasks::replace_if_new;

/// How GPUs are watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Device slots that the node offers per healthy GPU; copied into the inventory.
    pub slots_per_gpu: u32,
    /// Memory that pods cannot request, because their contexts take it.
    pub context_reserve: ContextReserve,
    /// Memory of the host for what leaves each GPU.
    pub host_memory: HostMemory,
    /// Time between two scans.
    pub scan_every: Duration,
    /// Consecutive good scans that make an unhealthy GPU healthy again.
    pub good_scans: NonZeroU32,
    /// A driver that has not answered for this long counts as unavailable.
    pub answer_timeout: Duration,
    /// Which Xids make a GPU unhealthy.
    pub policy: Policy,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            slots_per_gpu: 10,
            context_reserve: ContextReserve::Default,
            host_memory: HostMemory::default(),
            scan_every: Duration::from_secs(5),
            good_scans: NonZeroU32::MIN.saturating_add(2),
            answer_timeout: Duration::from_secs(30),
            policy: Policy::default(),
        }
    }
}

impl Settings {
    fn inventory(&self, registry: &GpuRegistry) -> NodeInventory {
        self.host_memory.provided_to(registry.inventory(self.slots_per_gpu, self.context_reserve))
    }
}

/// What is known of the GPUs while they are watched.
#[derive(Debug, Clone)]
pub struct GpuWatch {
    /// The inventory; it changes only when its content does.
    pub inventory: watch::Receiver<NodeInventory>,
    /// The GPUs of the inventory on which no program can work until they are reset, repaired or replaced, by UUID, and why.
    pub lost: watch::Receiver<BTreeMap<String, String>>,
    /// GPUs that exist and are not in the inventory.
    pub skipped: watch::Receiver<Vec<Skipped>>,
    /// Whether Xid events arrive. Without them only scans find faults.
    pub listens: watch::Receiver<bool>,
    /// Events from the subscription on; earlier ones are not repeated.
    pub events: broadcast::Sender<GpuEvent>,
}

/// Number of events that a slow receiver may lag behind.
const EVENTS_KEPT: usize = 1_024;

/// Starts to watch. Returns when the driver has answered for the first time; `None` if `stop` was cancelled before. `unavailable` is called
/// with each new reason why the driver has not answered yet.
pub async fn watch(
    gpus: Arc<dyn GpuDriver>,
    settings: Settings,
    stop: CancellationToken,
    mut unavailable: impl FnMut(&DriverUnavailable),
) -> Option<GpuWatch> {
    let mut registry = GpuRegistry::new(settings.policy.clone(), settings.good_scans);
    let began = Instant::now();
    let mut logged = None;
    loop {
        let scan = registry.begin_scan(ScanPurpose::Scheduled);
        let result = tokio::select! {
            () = stop.cancelled() => return None,
            result = ask(&gpus) => join(result),
        };
        match result {
            Ok(scanned) => {
                let events = registry.finish_scan(scan, Ok(scanned), 0);
                events.iter().for_each(log_event);
                break;
            }
            Err(why) if logged.as_ref() != Some(&why) => {
                tracing::warn!("no GPUs yet: {why}; retrying every {:?}", settings.scan_every);
                unavailable(&why);
                logged = Some(why);
            }
            Err(_) => {}
        }
        tokio::select! {
            () = stop.cancelled() => return None,
            () = tokio::time::sleep(settings.scan_every) => {}
        }
    }
    let (inventory, inventory_seen) = watch::channel(settings.inventory(&registry));
    let (lost, lost_seen) = watch::channel(registry.lost());
    let (skipped, skipped_seen) = watch::channel(Vec::new());
    let (listens, listens_seen) = watch::channel(false);
    let events = broadcast::Sender::new(EVENTS_KEPT);
    let watched = GpuWatch {
        inventory: inventory_seen,
        lost: lost_seen,
        skipped: skipped_seen,
        listens: listens_seen,
        events: events.clone(),
    };
    let (sender, messages) = mpsc::unbounded_channel();
    let (listener, stopped) = (gpus.clone(), stop.clone());
    let thread = std::thread::Builder::new().name("gpu-events".into());
    if let Err(error) = thread.spawn(move || xid_events::forward(listener.as_ref(), &sender, &stopped)) {
        tracing::error!("no thread to wait for Xid events, only scans find faults: {error}");
    }
    let watcher = Watcher { gpus, settings, registry, began, inventory, lost, skipped, listens, events };
    watcher.publish();
    tokio::spawn(watcher.run(messages, stop));
    Some(watched)
}

type Answer = Result<Vec<ScannedGpu>, DriverUnavailable>;

fn ask(gpus: &Arc<dyn GpuDriver>) -> JoinHandle<Answer> {
    let gpus = gpus.clone();
    tokio::task::spawn_blocking(move || gpus.inventory())
}

fn join(result: Result<Answer, tokio::task::JoinError>) -> Answer {
    result.unwrap_or_else(|error| Err(DriverUnavailable(format!("the query panicked: {error}"))))
}

struct Watcher {
    gpus: Arc<dyn GpuDriver>,
    settings: Settings,
    registry: GpuRegistry,
    began: Instant,
    inventory: watch::Sender<NodeInventory>,
    lost: watch::Sender<BTreeMap<String, String>>,
    skipped: watch::Sender<Vec<Skipped>>,
    listens: watch::Sender<bool>,
    events: broadcast::Sender<GpuEvent>,
}

struct RunningScan {
    scan: Scan,
    answer: JoinHandle<Answer>,
    /// When `answer_timeout` ends; `None` after it has ended.
    until: Option<Instant>,
}

impl Watcher {
    async fn run(mut self, mut messages: mpsc::UnboundedReceiver<ListenerMessage>, stop: CancellationToken) {
        let mut ticks =
            tokio::time::interval_at(Instant::now() + self.settings.scan_every, self.settings.scan_every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut running: Option<RunningScan> = None;
        let mut scan_requested = false;
        loop {
            if scan_requested && running.is_none() {
                scan_requested = false;
                // A flood of events must not prevent recovery: only scans at intervals count towards it.
                let is_due = ticks.tick().now_or_never().is_some();
                running = Some(self.start_scan(if is_due {
                    ScanPurpose::Scheduled
                } else {
                    ScanPurpose::Prompted
                }));
            }
            let events = tokio::select! {
                () = stop.cancelled() => return,
                Some(message) = messages.recv() => {
                    scan_requested |= self.needs_scan(&message);
                    self.listens.send_if_modified(|old| replace_if_new(old, message.is_ok()));
                    match message {
                        Ok(DriverEvent::Xid { uuid, code }) => self.registry.record_xid(uuid.as_deref(), code, self.now_ns()),
                        Ok(_) | Err(_) => Vec::new(),
                    }
                }
                progress = progress(&mut running) => match progress {
                    Progress::Answered(scan, answer) => {
                        running = None;
                        self.registry.finish_scan(scan, answer, self.now_ns())
                    }
                    Progress::TooLong(scan) => {
                        let why = DriverUnavailable(format!("no answer for {:?}", self.settings.answer_timeout));
                        self.registry.finish_scan(scan, Err(why), self.now_ns())
                    }
                },
                _ = ticks.tick(), if running.is_none() => {
                    running = Some(self.start_scan(ScanPurpose::Scheduled));
                    continue;
                }
            };
            for one in events {
                log_event(&one);
                // There may be no subscriber.
                let _ = self.events.send(one);
            }
            self.publish();
        }
    }

    /// Programs can cause Xids of their own at any rate. These say nothing about the GPU.
    fn needs_scan(&self, message: &ListenerMessage) -> bool {
        match message {
            Ok(DriverEvent::Xid { code, .. }) => self.settings.policy.class(*code) != Class::Application,
            Ok(_) | Err(_) => true,
        }
    }

    fn start_scan(&mut self, purpose: ScanPurpose) -> RunningScan {
        let until = Some(Instant::now() + self.settings.answer_timeout);
        RunningScan { scan: self.registry.begin_scan(purpose), answer: ask(&self.gpus), until }
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn publish(&self) {
        let inventory = self.settings.inventory(&self.registry);
        self.inventory.send_if_modified(|old| replace_if_new(old, inventory));
        self.lost.send_if_modified(|old| replace_if_new(old, self.registry.lost()));
        let skipped = self.registry.skipped().to_vec();
        self.skipped.send_if_modified(|old| {
            for one in skipped.iter().filter(|one| !old.contains(one)) {
                let name = one.uuid.as_deref().unwrap_or("without identity");
                tracing::warn!("GPU {} ({name}) is not shared: {}", one.index, one.reason);
            }
            replace_if_new(old, skipped)
        });
    }
}

enum Progress {
    Answered(Scan, Answer),
    /// Reported once per scan. The answer is still awaited: a second call would block like the first.
    TooLong(Scan),
}

/// Waits for progress of the scan that is under way; forever without a scan.
async fn progress(running: &mut Option<RunningScan>) -> Progress {
    let Some(RunningScan { scan, answer, until }) = running else { return std::future::pending().await };
    let answer_timeout = async {
        match *until {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        result = answer => Progress::Answered(*scan, join(result)),
        () = answer_timeout => {
            *until = None;
            Progress::TooLong(*scan)
        }
    }
}

fn log_event(events: &GpuEvent) {
    match events {
        GpuEvent::Appeared { uuid } => tracing::info!(gpu = %uuid, "GPU found"),
        GpuEvent::Unhealthy { uuid, reason } => tracing::error!(gpu = %uuid, "GPU is unhealthy: {reason}"),
        GpuEvent::Healthy { uuid, was, after_ns } => {
            let after = Duration::from_nanos(*after_ns);
            tracing::info!(gpu = %uuid, "GPU is healthy again after {after:?}, was: {was}");
        }
        GpuEvent::Xid { uuid, code, class } => {
            let uuid = uuid.as_deref().unwrap_or("unknown");
            let description = xid::describe(*code);
            match class {
                Class::Application => {
                    tracing::info!(gpu = uuid, "{description}: a program's fault, the GPU stays healthy")
                }
                Class::Informational => tracing::info!(gpu = uuid, "{description}"),
                Class::Critical => tracing::error!(gpu = uuid, "{description}"),
            }
        }
    }
}

#[cfg(test)]
mod tests;
