//! Asks the driver and publishes what comes of it: looks at intervals and whenever something was heard, and listens for Xids
//! on a thread of its own. No call of the driver is ever made on a thread of the runtime.

use std::num::NonZeroU32;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use sluice_placement::inventory::NodeInventory;
use tokio::sync::{broadcast, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::fleet::{Fleet, Look, News, Purpose, Skipped};
use super::source::{Gpus, NoDriver, Report, Sighting};
use super::xid::{self, Class, Policy};

/// How GPUs are watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Seats that the node offers per healthy GPU; goes into the inventory as it is.
    pub seats_per_gpu: u32,
    /// Time between two looks.
    pub look_every: Duration,
    /// Good looks in a row that make a sick GPU healthy again.
    pub good_looks: NonZeroU32,
    /// After so long without an answer, the driver counts as not answering.
    pub patience: Duration,
    /// Which Xids make a GPU unhealthy.
    pub policy: Policy,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            seats_per_gpu: 10,
            look_every: Duration::from_secs(5),
            good_looks: NonZeroU32::MIN.saturating_add(2),
            patience: Duration::from_secs(30),
            policy: Policy::default(),
        }
    }
}

/// What is known of the GPUs, for as long as somebody watches.
#[derive(Debug, Clone)]
pub struct Watched {
    /// The inventory; changes only when something in it does.
    pub inventory: watch::Receiver<NodeInventory>,
    /// GPUs that are there and not in the inventory.
    pub skipped: watch::Receiver<Vec<Skipped>>,
    /// Whether Xid events reach us at the moment; without them, polling alone finds what is wrong.
    pub listens: watch::Receiver<bool>,
    /// What happens. Subscribe for it; what happened before is not told again.
    pub news: broadcast::Sender<News>,
}

/// News that a slow reader may lag behind.
const NEWS_KEPT: usize = 1_024;
/// After the driver refused to let us listen.
const LISTEN_AGAIN: Duration = Duration::from_secs(1);

/// Begins to watch, and returns when the driver has answered for the first time; none if stopped before it did.
pub async fn watch(gpus: Arc<dyn Gpus>, settings: Settings, stop: CancellationToken) -> Option<Watched> {
    let mut fleet = Fleet::new(settings.policy.clone(), settings.good_looks);
    let began = Instant::now();
    let mut complaint = None;
    loop {
        let look = fleet.begin(Purpose::Scheduled);
        let result = tokio::select! {
            () = stop.cancelled() => return None,
            result = ask(&gpus) => join(result),
        };
        match result {
            Ok(sightings) => {
                let news = fleet.looked(look, Ok(sightings), 0);
                news.iter().for_each(tell);
                break;
            }
            Err(why) if complaint.as_ref() != Some(&why) => {
                tracing::warn!("no GPUs yet: {why}; asking again every {:?}", settings.look_every);
                complaint = Some(why);
            }
            Err(_) => {}
        }
        tokio::select! {
            () = stop.cancelled() => return None,
            () = tokio::time::sleep(settings.look_every) => {}
        }
    }
    let (inventory, inventory_seen) = watch::channel(fleet.inventory(settings.seats_per_gpu));
    let (skipped, skipped_seen) = watch::channel(Vec::new());
    let (listens, listens_seen) = watch::channel(false);
    let news = broadcast::Sender::new(NEWS_KEPT);
    let watched = Watched {
        inventory: inventory_seen,
        skipped: skipped_seen,
        listens: listens_seen,
        news: news.clone(),
    };
    let (heard_by_thread, heard) = mpsc::unbounded_channel();
    let (listener, stopped) = (gpus.clone(), stop.clone());
    let thread = std::thread::Builder::new().name("gpu-events".into());
    if let Err(error) = thread.spawn(move || listen(listener.as_ref(), &heard_by_thread, &stopped)) {
        tracing::error!("no thread to wait for Xid events, only polling is left: {error}");
    }
    let watcher = Watcher { gpus, settings, fleet, began, inventory, skipped, listens, news };
    watcher.publish();
    tokio::spawn(watcher.run(heard, stop));
    Some(watched)
}

/// What the listening thread says.
enum Heard {
    Xid {
        uuid: Option<String>,
        code: u64,
    },
    Listening,
    /// Listening failed: looking may tell why.
    Deaf,
}

fn listen(gpus: &dyn Gpus, heard: &mpsc::UnboundedSender<Heard>, stop: &CancellationToken) {
    let is_over = || stop.is_cancelled() || heard.is_closed();
    let mut complaint = None;
    while !is_over() {
        let result = gpus.listen(&mut |report| {
            let told = match report {
                Report::Listening => Some(Heard::Listening),
                Report::Xid { uuid, code } => Some(Heard::Xid { uuid, code }),
                Report::Quiet => None,
            };
            if let Some(told) = told {
                // Refused only when the watcher is gone, which is seen right below.
                let _ = heard.send(told);
            }
            if is_over() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        match result {
            Ok(()) => complaint = None,
            Err(why) => {
                let _ = heard.send(Heard::Deaf);
                if complaint.as_ref() != Some(&why) {
                    tracing::warn!("cannot wait for Xid events: {why}; trying again every {LISTEN_AGAIN:?}");
                    complaint = Some(why);
                }
                std::thread::sleep(LISTEN_AGAIN);
            }
        }
    }
}

type Answer = Result<Vec<Sighting>, NoDriver>;

fn ask(gpus: &Arc<dyn Gpus>) -> JoinHandle<Answer> {
    let gpus = gpus.clone();
    tokio::task::spawn_blocking(move || gpus.inventory())
}

fn join(result: Result<Answer, tokio::task::JoinError>) -> Answer {
    result.unwrap_or_else(|error| Err(NoDriver(format!("asking it ended in a panic: {error}"))))
}

struct Watcher {
    gpus: Arc<dyn Gpus>,
    settings: Settings,
    fleet: Fleet,
    began: Instant,
    inventory: watch::Sender<NodeInventory>,
    skipped: watch::Sender<Vec<Skipped>>,
    listens: watch::Sender<bool>,
    news: broadcast::Sender<News>,
}

/// A look that is under way.
struct Looking {
    look: Look,
    answer: JoinHandle<Answer>,
    /// When patience ends; none when it has.
    until: Option<Instant>,
}

impl Watcher {
    async fn run(mut self, mut heard: mpsc::UnboundedReceiver<Heard>, stop: CancellationToken) {
        let mut ticks =
            tokio::time::interval_at(Instant::now() + self.settings.look_every, self.settings.look_every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut looking: Option<Looking> = None;
        let mut is_prompted = false;
        loop {
            if is_prompted && looking.is_none() {
                is_prompted = false;
                // However much is heard, GPUs recover: only looks at intervals speak for them.
                let is_due = ticks.tick().now_or_never().is_some();
                looking = Some(self.look(if is_due { Purpose::Scheduled } else { Purpose::Prompted }));
            }
            let news = tokio::select! {
                () = stop.cancelled() => return,
                Some(heard) = heard.recv() => {
                    is_prompted |= self.is_reason_to_look(&heard);
                    let listens = !matches!(heard, Heard::Deaf);
                    self.listens.send_if_modified(|old| replace_if_new(old, listens));
                    match heard {
                        Heard::Xid { uuid, code } => self.fleet.heard(uuid.as_deref(), code, self.now_ns()),
                        Heard::Listening | Heard::Deaf => Vec::new(),
                    }
                }
                progress = progress(&mut looking) => match progress {
                    Progress::Answered(look, answer) => {
                        looking = None;
                        self.fleet.looked(look, answer, self.now_ns())
                    }
                    Progress::TooLong(look) => {
                        let why = NoDriver(format!("no answer for {:?}", self.settings.patience));
                        self.fleet.looked(look, Err(why), self.now_ns())
                    }
                },
                _ = ticks.tick(), if looking.is_none() => {
                    looking = Some(self.look(Purpose::Scheduled));
                    continue;
                }
            };
            for one in news {
                tell(&one);
                // Nobody may be interested.
                let _ = self.news.send(one);
            }
            self.publish();
        }
    }

    /// Programs cause Xids of their own at will; those say nothing about the GPU.
    fn is_reason_to_look(&self, heard: &Heard) -> bool {
        match heard {
            Heard::Xid { code, .. } => self.settings.policy.class(*code) != Class::Application,
            Heard::Listening | Heard::Deaf => true,
        }
    }

    fn look(&mut self, purpose: Purpose) -> Looking {
        let until = Some(Instant::now() + self.settings.patience);
        Looking { look: self.fleet.begin(purpose), answer: ask(&self.gpus), until }
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn publish(&self) {
        let inventory = self.fleet.inventory(self.settings.seats_per_gpu);
        self.inventory.send_if_modified(|old| replace_if_new(old, inventory));
        let skipped = self.fleet.skipped().to_vec();
        self.skipped.send_if_modified(|old| {
            for one in skipped.iter().filter(|one| !old.contains(one)) {
                let name = one.uuid.as_deref().unwrap_or("which does not say who it is");
                tracing::warn!("GPU {} ({name}) is not shared: {}", one.index, one.reason);
            }
            replace_if_new(old, skipped)
        });
    }
}

fn replace_if_new<T: PartialEq>(old: &mut T, new: T) -> bool {
    let is_new = *old != new;
    *old = new;
    is_new
}

/// What becomes of a look that is under way.
enum Progress {
    Answered(Look, Answer),
    /// Told once per look. Its answer is still waited for: a second call would hang like the first.
    TooLong(Look),
}

/// Waits for progress of the look that is under way; for ever without one.
async fn progress(looking: &mut Option<Looking>) -> Progress {
    let Some(Looking { look, answer, until }) = looking else { return std::future::pending().await };
    let patience = async {
        match *until {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        result = answer => Progress::Answered(*look, join(result)),
        () = patience => {
            *until = None;
            Progress::TooLong(*look)
        }
    }
}

fn tell(news: &News) {
    match news {
        News::Appeared { uuid } => tracing::info!(gpu = %uuid, "GPU found"),
        News::Unhealthy { uuid, reason } => tracing::error!(gpu = %uuid, "GPU is unhealthy: {reason}"),
        News::Healthy { uuid, was, after_ns } => {
            let after = Duration::from_nanos(*after_ns);
            tracing::info!(gpu = %uuid, "GPU is healthy again after {after:?}, was: {was}");
        }
        News::Xid { uuid, code, class } => {
            let uuid = uuid.as_deref().unwrap_or("unknown");
            let words = xid::describe(*code);
            match class {
                Class::Application => {
                    tracing::info!(gpu = uuid, "{words}: a program's fault, the GPU stays healthy")
                }
                Class::Notice => tracing::info!(gpu = uuid, "{words}"),
                Class::Critical => tracing::error!(gpu = uuid, "{words}"),
            }
        }
    }
}

#[cfg(test)]
#[path = "watcher_tests.rs"]
mod tests;
