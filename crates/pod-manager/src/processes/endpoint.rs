//! What the manager keeps with each process of the table: its pages, its unanswered requests, its wake-ups, and the descriptors that belong
//! to it.

use super::host_memory::HostMemory;
use super::pages::Pages;
use crate::io::Io;
use crate::poller::Source;
use crate::stopped_threads::StoppedThreads;
use nix::sys::epoll::EpollFlags;
use nix::sys::eventfd::{EfdFlags, EventFd};
use sluice_comm::page::{FIRST_WITH_ACTIVITY, Flags};
use sluice_core::ProcessId;
use sluice_core::channel_groups::{Activity, StallDetector};
use sluice_rate_limiter::{Rate, RateLimiter};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The most QUOTA requests of one process that may be unanswered at once.
pub(crate) const MAX_UNANSWERED: usize = 16;

/// The manager's end of a process.
#[derive(Debug, Default)]
pub(crate) struct Endpoint {
    /// For logs.
    pub(crate) label: String,
    /// Its number in each of its pid namespaces, from this manager's to its own; empty if not read yet.
    pub(crate) namespace_pids: Vec<i32>,
    /// The container that it is in, if its cgroup names one.
    pub(crate) container: Option<String>,
    /// Readable when it ends.
    pub(crate) pidfd: Option<OwnedFd>,
    /// A reservation of it has waited for a reading, which shows its context.
    pub(crate) has_reserved: bool,
    /// QUOTA requests not answered yet.
    pub(crate) unanswered: Vec<i32>,
    /// Only attached processes have pages.
    pub(crate) pages: Option<Pages>,
    /// Where its memory goes when it leaves the GPU.
    pub(crate) host_memory: Option<Arc<HostMemory>>,
    /// Its memory may leave the GPU, and there was no place on the host for it when it attached: it gets none, which would stay in the place of
    /// that of others.
    pub(crate) lacks_host_memory: bool,
    pub(crate) wakeups: Wakeups,
    /// Whether it makes progress while it reports work.
    pub(crate) stall: StallDetector,
    /// Its threads, while they are stopped for a violation.
    pub(crate) stopped_threads: Option<StoppedThreads>,
}

impl Endpoint {
    pub(crate) fn new(label: String, container: Option<String>, pidfd: Option<OwnedFd>) -> Self {
        Self { label, container, pidfd, ..Self::default() }
    }

    /// The activity that it reports, if its report counts. One without pages, or whose hook does not report it, counts as busy, a stalled
    /// one as idle.
    pub(super) fn activity(&self, report_counts: bool) -> Activity {
        let pages = self.pages.as_ref().filter(|_| report_counts);
        self.stall.activity(pages.map_or(Activity::UNKNOWN, Pages::activity))
    }

    /// Since when all of its work only waits, by its report, if that counts.
    pub(super) fn waits_since(&self, report_counts: bool) -> Option<u64> {
        self.pages.as_ref().filter(|_| report_counts).and_then(Pages::waits_since)
    }

    /// Whether it reports that best-effort clients should have default slices beside it.
    pub(crate) fn wants_default_slices(&self) -> bool {
        self.pages
            .as_ref()
            .is_some_and(|pages| pages.reports_activity() && pages.report().wants_default_slices())
    }

    /// Since when several of its contexts have had work at the same time, by its report, nanoseconds.
    pub(crate) fn contexts_at_once_since(&self) -> Option<u64> {
        self.pages.as_ref().and_then(|pages| pages.report().contexts_at_once_since_ns())
    }

    /// By how much it reports that its hold kernels lead, nanoseconds.
    pub(crate) fn lead_ns(&self) -> u64 {
        self.pages.as_ref().map_or(0, |pages| pages.report().lead_ns())
    }

    /// Whether its hook reports that it may have channel groups that are not announced.
    pub(crate) fn has_unannounced_groups(&self) -> bool {
        self.pages.as_ref().is_some_and(|pages| pages.report().has_unannounced_groups())
    }

    /// Whether a launch of it is postponed because of another client's deadline.
    fn is_postponed(&self) -> bool {
        self.pages.as_ref().is_some_and(|pages| pages.report().is_postponed())
    }

    /// Requests on its page that it wakes the manager, from this time on, or withdraws the request.
    pub(crate) fn request_wakeups(&mut self, since: Option<u64>) {
        self.wakeups.requested_since = since;
        if let Some(pages) = &self.pages {
            pages.grant().set_wakeup_requested(since.is_some());
        }
    }

    /// Takes a wake-up: withdraws the request, because the pages are about to be read. After too many its
    /// eventfd is no longer polled.
    pub(crate) fn take_wakeup(&mut self, activity: Activity, io: &Io) {
        let news = |since: u64| activity.busy || activity.since_ns >= since || self.is_postponed();
        let requested = self.wakeups.requested_since.is_some_and(news);
        self.request_wakeups(None);
        let wakeup = if requested { Wakeup::WithActivity } else { Wakeup::WithoutActivity };
        if !self.wakeups.accept(wakeup, io.now()) {
            self.ignore_wakeups(io);
            tracing::warn!(peer = %self.label, ?wakeup, "process wakes the manager too often: its wake-ups are ignored");
        }
    }

    /// Removes its eventfd from the poller. Closing the eventfd would not suffice: any copy would still wake the manager.
    pub(crate) fn ignore_wakeups(&self, io: &Io) {
        if let Some(eventfd) = &self.wakeups.eventfd {
            io.poller.remove(eventfd);
        }
    }

    /// Gives it pages that its hook understands, and a wake-up eventfd if the hook knows that. Keeps pages of the same
    /// version, and counts returns on them from here.
    pub(crate) fn provide_pages(
        &mut self,
        id: ProcessId,
        version: u32,
        flags: Flags,
        io: &Io,
    ) -> io::Result<()> {
        if let Some(pages) = self.pages.as_mut().filter(|pages| pages.version == version) {
            pages.restart_returns();
            return Ok(());
        }
        let pages = Pages::create(version, flags, io.now())?;
        self.ignore_wakeups(io);
        self.wakeups.eventfd = (version >= FIRST_WITH_ACTIVITY).then(|| polled_eventfd(id, io)).flatten();
        self.pages = Some(pages);
        // The new page does not request wake-ups.
        self.wakeups.requested_since = None;
        Ok(())
    }

    /// Ends its grant and forgets its unanswered requests.
    pub(crate) fn close_token_channel(&mut self) {
        self.unanswered.clear();
        self.request_wakeups(None);
        if let Some(pages) = &mut self.pages {
            pages.close();
        }
    }
}

/// An eventfd that the poller watches. Without one the process is polled from time to time.
fn polled_eventfd(id: ProcessId, io: &Io) -> Option<OwnedFd> {
    let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
    let eventfd = OwnedFd::from(EventFd::from_value_and_flags(0, flags).ok()?);
    // Each write is an edge, whether what was written before was read or not.
    io.poller.add(&eventfd, Source::Wakeup(id), EpollFlags::EPOLLIN | EpollFlags::EPOLLET).ok()?;
    Some(eventfd)
}

/// Whether a wake-up came with news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wakeup {
    /// The manager requested it, and the process has work or has had some since then.
    WithActivity,
    /// The manager did not request it, or nothing has happened.
    WithoutActivity,
}

impl Wakeup {
    /// Nanoseconds of the budget that it takes.
    const fn cost_ns(self) -> u64 {
        match self {
            // 10,000 a second are accepted for ever. The activity is the process's word only.
            Self::WithActivity => 100_000,
            // 1,000 a second are accepted for ever. An honest process stays below: it reads the request just before the manager
            // withdraws it at most once for each time that it begins to work.
            Self::WithoutActivity => 1_000_000,
        }
    }
}

/// 10 s of wake-ups at once, refilled by 1 s a second: 10,000 without activity, and 1,000 a second in the long run.
const WAKEUP_RATE: Rate = Rate::one_per(10_000_000_000, 1);

/// Wake-ups of one process. Each costs a round of the event loop. A process that exceeds the limit is polled only: the manager removes its
/// eventfd from the poller.
#[derive(Debug)]
pub(crate) struct Wakeups {
    /// The process writes here when it goes from idle to busy, if its page requests that. Never read: the process can make reading
    /// wait.
    pub(crate) eventfd: Option<OwnedFd>,
    /// Since when its page requests wake-ups, if it does.
    pub(crate) requested_since: Option<u64>,
    /// Survives a new eventfd, so that attaching anew does not refill it.
    limiter: RateLimiter,
}

impl Default for Wakeups {
    fn default() -> Self {
        Self { eventfd: None, requested_since: None, limiter: RateLimiter::full(WAKEUP_RATE) }
    }
}

impl Wakeups {
    /// Counts a wake-up at `now`. Returns `false` once there are too many.
    pub(crate) fn accept(&mut self, wakeup: Wakeup, now: u64) -> bool {
        // An excess is remembered for as long as one wake-up costs.
        self.limiter.take(wakeup.cost_ns(), wakeup.cost_ns(), now)
    }
}

#[cfg(test)]
mod tests;
