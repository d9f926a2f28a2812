//! What follows from violations after which a limit does not hold by itself: a process enables its disabled groups, or sets a time slice.
//!
//! A single finding may be the effect of a race. So the policy applies when a process does the same again.

use super::ViolationKind;
use super::policy::{Consequence, ViolationPolicy};
use super::stopped_threads::StoppedThreads;
use crate::channel_groups::{Announcement, ChannelGroups, Checks, GroupFinding};
use crate::clients::{Process, Processes};
use crate::message::Remote;
use crate::shared::Shared;
use sluice_core::{ClientId, ProcessId};
use std::collections::{BTreeMap, HashMap};
use tracing::{info, warn};

/// The policy applies to a violation that follows one of the same kind by the same process within this time.
const REPEATED_WITHIN_NS: u64 = 10_000_000_000;
/// The longest time between two checks of time slices, and the checks in which all groups are read at most: 1,024 groups, 32 a check.
const BETWEEN_CHECKS_NS: u64 = 500_000_000;
const LONGEST_ROUND: u64 = 32;
/// Findings within this time are of one check.
const ONE_CHECK_NS: u64 = 200_000_000;
/// How long a client's process is stopped for the first time. Each further time takes twice as long as the one before.
const FIRST_STOP_NS: u64 = 10_000_000_000;
const LONGEST_STOP_NS: u64 = 600_000_000_000;

/// How often the groups of a process are disabled that it announces no longer while it is stopped. Those that are gone are forgotten then.
const DISABLED_EVERY_NS: u64 = 2_000_000_000;

/// A process by its number and start time; by its id if they are unknown.
type Violator = Result<(i32, u64), ProcessId>;

/// When a check last found something.
#[derive(Clone, Copy, Debug)]
struct Finding {
    at: u64,
    /// The number of the check if it reads time slices.
    check: Option<u64>,
    /// A finding after this time is no repetition.
    kept_until: u64,
}

/// A stopped process.
#[derive(Debug)]
struct Stop {
    until: u64,
    /// `None`: only its groups are disabled.
    threads: Option<StoppedThreads>,
    /// What was announced last on its connection meanwhile.
    announcement: Option<Announcement>,
    /// When its groups are disabled anew if it announces some of them no longer.
    next_disable: u64,
}

/// The policy, and the processes that are stopped by it.
pub(crate) struct Consequences {
    policy: ViolationPolicy,
    remote: Remote,
    /// When a check last found each process to do something anew. A process that attaches anew is the same one.
    found: HashMap<(Violator, ViolationKind), Finding>,
    stopped: BTreeMap<ProcessId, Stop>,
    /// How often processes of a client were stopped.
    stops: HashMap<ClientId, u32>,
}

impl Consequences {
    pub(crate) fn new(policy: ViolationPolicy, remote: Remote) -> Self {
        let (found, stopped, stops) = (HashMap::new(), BTreeMap::new(), HashMap::new());
        Self { policy, remote, found, stopped, stops }
    }

    /// Records the violation of a process, and lets the policy follow.
    pub(crate) fn violated(
        &mut self,
        id: ProcessId,
        GroupFinding { kind, what, checks, .. }: &GroupFinding,
        groups: &mut ChannelGroups,
        shared: &mut Shared,
    ) {
        let Some(process) = shared.processes.get(id) else { return };
        let (client, pid, now) = (process.client, process.pid, shared.io.now());
        if self.stopped.contains_key(&id) {
            groups.scheduler.stop_process(id, &mut shared.grants.ledger, now);
            return shared.record(client, pid, (*kind, what), Consequence::Report);
        }
        let is_repeated = self.is_repeated(process.key.ok_or(id), *kind, *checks, now);
        let definition = shared.clients.get(client).map(|client| &client.definition).filter(|_| is_repeated);
        let consequence = definition.map_or(Consequence::Report, |of| self.policy.consequence(of.spec.limit));
        let stops = consequence != Consequence::Report
            && groups.scheduler.stop_process(id, &mut shared.grants.ledger, now);
        if !stops {
            return shared.record(client, pid, (*kind, what), consequence);
        }
        let times = self.stops.entry(client).or_default();
        let duration = FIRST_STOP_NS.saturating_mul(1 << (*times).min(10)).min(LONGEST_STOP_NS);
        *times += 1;
        let threads = self.stop_threads(id, shared);
        let (until, next_disable) = (now.saturating_add(duration), now.saturating_add(DISABLED_EVERY_NS));
        self.stopped.insert(id, Stop { until, threads, announcement: None, next_disable });
        let what = format!("{what}; the process is stopped for {} s", duration / 1_000_000_000);
        shared.record(client, pid, (*kind, &what), consequence);
    }

    /// Whether a process has done something again. A program may change the slices of all its groups once, and one check reads a part of
    /// them. So a slice counts as changed again only if it was read after the first one was found. The finding is noted for
    /// later ones: for a slice for two rounds of the checks at least, because the group is not read sooner.
    fn is_repeated(
        &mut self,
        violator: Violator,
        kind: ViolationKind,
        checks: Option<Checks>,
        now: u64,
    ) -> bool {
        self.found.retain(|_, finding| now <= finding.kept_until);
        let before = self.found.get(&(violator, kind)).copied();
        let is_new = before.is_none_or(|Finding { at, check, .. }| match (checks, check) {
            (Some(checks), Some(check)) => checks.before >= check,
            _ => now.saturating_sub(at) >= ONE_CHECK_NS,
        });
        if is_new {
            let round = checks.map_or(0, |checks| checks.current.saturating_sub(checks.before));
            let two_rounds = 2 * round.min(LONGEST_ROUND) * BETWEEN_CHECKS_NS;
            let kept_until = now.saturating_add(REPEATED_WITHIN_NS.max(two_rounds));
            let check = checks.map(|checks| checks.current);
            self.found.insert((violator, kind), Finding { at: now, check, kept_until });
        }
        is_new && before.is_some()
    }

    fn stop_threads(&self, id: ProcessId, shared: &Shared) -> Option<StoppedThreads> {
        let process = shared.processes.get(id)?;
        let pidfd = process.pidfd.as_ref()?.try_clone().ok()?;
        StoppedThreads::begin(id, process.pid?, pidfd, self.remote.clone()).ok()
    }

    /// The threads of a process have stopped, so its groups stay as they are set from now on; or they could not be stopped.
    pub(crate) fn threads_stopped(
        &mut self,
        id: ProcessId,
        result: Result<(), String>,
        groups: &mut ChannelGroups,
        shared: &mut Shared,
    ) {
        let Some(stop) = self.stopped.get_mut(&id) else { return };
        let now = shared.io.now();
        if let Err(why) = result {
            stop.threads = None;
            let client = shared.processes.client_of(id);
            if shared.io.may_log("stop", client.into()).is_some() {
                let (client, peer) = (shared.clients.name_or_removed(client), shared.processes.label(id));
                warn!(
                    client,
                    peer, "only the channel groups of the process are disabled, its threads run: {why}"
                );
            }
        }
        groups.scheduler.stop_process(id, &mut shared.grants.ledger, now);
    }

    /// Keeps what a process announces while it is stopped, for the end of the stop.
    pub(crate) fn keep_announcement(&mut self, id: ProcessId, announcement: &Announcement) {
        if let Some(stop) = self.stopped.get_mut(&id) {
            // Without descriptors for copies the process keeps all its groups.
            stop.announcement = announcement.try_clone().ok();
        }
    }

    /// When the next process is to be released, or its groups are to be disabled anew.
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        let next = |stop: &Stop| {
            if stop.announcement.is_some() { stop.until.min(stop.next_disable) } else { stop.until }
        };
        self.stopped.values().map(next).min()
    }

    /// Releases the processes whose time is over, and those of clients that have become latency-critical. Returns what they have announced
    /// last meanwhile.
    pub(crate) fn release_due(
        &mut self,
        groups: &mut ChannelGroups,
        shared: &mut Shared,
    ) -> Vec<(ProcessId, Announcement)> {
        let mut announcements = Vec::new();
        let now = shared.io.now();
        let is_critical = |id: &ProcessId| {
            let class = shared.processes.client_of(*id).and_then(|client| shared.clients.class(client));
            class.is_some_and(|class| class.is_latency_critical())
        };
        for (id, stop) in self.stopped.extract_if(.., |id, stop| stop.until <= now || is_critical(id)) {
            groups.scheduler.resume_process(id);
            let client = shared.processes.client_of(id);
            if let Some(dropped) = shared.io.may_log("stop", client.into()) {
                let (client, peer) = (shared.clients.name_or_removed(client), shared.processes.label(id));
                info!(client, peer, dropped, "the stopped process is released");
            }
            let is_attached = shared.processes.get(id).is_some_and(Process::is_attached);
            announcements.extend(stop.announcement.filter(|_| is_attached).map(|announced| (id, announced)));
        }
        announcements
    }

    /// Whether a process is stopped.
    pub(crate) fn is_stopped(&self, id: ProcessId) -> bool {
        self.stopped.contains_key(&id)
    }

    /// Stops the processes again whose groups were announced anew, and from time to time those that announce some of theirs no longer.
    pub(crate) fn stop_again(&mut self, groups: &mut ChannelGroups, shared: &mut Shared) {
        let now = shared.io.now();
        for (id, stop) in &mut self.stopped {
            let is_due = now >= stop.next_disable;
            if is_due {
                stop.next_disable = now.saturating_add(DISABLED_EVERY_NS);
            }
            if !groups.scheduler.is_stopped(*id) || is_due && groups.keeps_unannounced(*id) {
                groups.scheduler.stop_process(*id, &mut shared.grants.ledger, now);
            }
        }
    }

    /// A process has ended, or its client was removed: its threads run again.
    pub(crate) fn forget_process(&mut self, id: ProcessId) {
        self.stopped.remove(&id);
    }

    /// Forgets a client that will not come back.
    pub(crate) fn forget_client(&mut self, id: ClientId) {
        self.stops.remove(&id);
    }

    /// How many processes of a client are stopped.
    pub(crate) fn stopped_processes(&self, client: ClientId, processes: &Processes) -> u32 {
        let its = self.stopped.keys().filter(|id| processes.client_of(**id) == Some(client));
        u32::try_from(its.count()).unwrap_or(u32::MAX)
    }

    /// Updates the gauges of stopped processes.
    pub(crate) fn refresh_gauges(&self, shared: &Shared) {
        for (id, client) in shared.clients.iter() {
            client.metrics.stopped.set(i64::from(self.stopped_processes(id, &shared.processes)));
        }
    }
}

#[cfg(test)]
mod tests;
