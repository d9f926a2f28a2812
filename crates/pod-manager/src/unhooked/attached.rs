//! Attached processes: the groups that are found from outside must be under control, with all of their channels.
//!
//! A second driver library in the process, or a program that has only sent an ATTACH, has groups that no hook announces. A program may also
//! announce its groups without their channels, groups that do not exist, or more groups than are kept. Such a process is scheduled as one
//! without the hook from then on, so it stays within its client's share. It is a violation unless the hook itself reports
//! that it has groups which are not announced: it makes a context, or it cannot announce all groups. A false report gains nothing, because
//! the process is scheduled from outside in both cases. A process whose announcement is complete again is scheduled by its page again.

use super::Unhooked;
use super::scanning::{Candidate, ControlDescriptor, Obstacle, ObstacleKind, ProcessKey};
use crate::channel_groups::{ChannelGroups, covers};
use crate::party::Party;
use crate::shared::Shared;
use crate::violations::ViolationKind;
use sluice_comm::attach::ContextHandles;
use sluice_core::ProcessId;
use sluice_rate_limiter::Backoff;
use std::collections::HashSet;
use std::time::Duration;
use tracing::info;

/// How long a group may be unannounced without a report of the hook: a group exists before its ioctl returns to the hook, and the hook
/// withdraws its report when it has sent the announcement, which the manager may not have read yet.
const UNANNOUNCED_FOR_NS: u64 = 250_000_000;
/// How long a suspicion outlasts the connection of its process.
const SUSPECTED_FOR_NS: u64 = 10_000_000_000;
/// The first and the longest time for which a process is scheduled from outside after it had unannounced groups. A process could otherwise
/// have them for half a second again and again.
const OUTSIDE_FOR: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(64)];
/// After this time without unannounced groups the next time outside is the first one again.
const FORGOTTEN_AFTER_NS: u64 = 64_000_000_000;

/// Groups of a process that are not under control, and when that was first seen.
#[derive(Debug)]
pub(super) struct Suspicion {
    since: u64,
    groups: HashSet<(u32, u32)>,
}

impl Suspicion {
    /// Whether it counts although its process has detached: it may attach again for a moment.
    pub(super) fn is_recent(&self, now: u64) -> bool {
        now.saturating_sub(self.since) < SUSPECTED_FOR_NS
    }
}

impl Unhooked {
    /// Compares the groups of an attached process with those that it has announced. If it has others for some time already, or more
    /// descriptors than are searched, it is a process without the hook for the searches from now on.
    pub(super) fn compare_announced(
        &mut self,
        found: &Candidate,
        result: &Result<Vec<ControlDescriptor>, Obstacle>,
        groups: &mut ChannelGroups,
        shared: &mut Shared,
    ) {
        let (key, now) = (found.key, shared.io.now());
        let Some(id) = shared.processes.find(key) else { return };
        let Some(process) = shared.processes.get(id) else { return };
        let client = process.client;
        // A process that keeps its announcement waiting gains nothing: it is scheduled from outside meanwhile.
        let is_excused =
            process.has_unannounced_groups() || groups.is_postponed(id) || groups.has_no_room(id);
        let what = match result {
            Ok(_) => {
                let found = found_groups(id, result, groups, shared).unwrap_or_default();
                let uncontrolled = groups.uncontrolled(id, &found);
                let count = uncontrolled.len();
                if !self.is_suspicion_confirmed(key, uncontrolled, now) {
                    return;
                }
                format!(
                    "{count} of the process's {} channel groups are not under control as it announced them",
                    found.len()
                )
            }
            Err(obstacle) => {
                if !is_excused {
                    self.record_overfull(client, found, obstacle, shared);
                }
                // Without the lock, the groups that it has announced stay under control. The lock may be ready later.
                if obstacle.kind == ObstacleKind::TooMany && self.can_lock(client, &shared.clients) {
                    self.schedule_from_outside(id, key, groups, shared);
                }
                return;
            }
        };
        if !is_excused {
            shared.record_violation(client, Some(key.0), ViolationKind::UnannouncedGroups, &what);
        } else if shared.io.may_log("unannounced", Party::Client(client)).is_some() {
            let (client, peer) = (shared.clients.name(client), shared.processes.label(id));
            info!(
                client,
                peer, "process is scheduled from outside, as its hook cannot announce all groups yet: {what}"
            );
        }
        self.schedule_from_outside(id, key, groups, shared);
    }

    /// The searches take an attached process for one without the hook from here on.
    fn schedule_from_outside(
        &mut self,
        id: ProcessId,
        key: ProcessKey,
        groups: &mut ChannelGroups,
        shared: &mut Shared,
    ) {
        let now = shared.io.now();
        let Some(process) = shared.processes.get_mut(id) else { return };
        process.misannounced = true;
        groups.withdraw_postponed(id);
        let [first, longest] = OUTSIDE_FOR;
        let outside = self.outside.entry(key).or_insert_with(|| Backoff::new(first, longest));
        if now.saturating_sub(outside.ready_at()) > FORGOTTEN_AFTER_NS {
            outside.succeeded();
        }
        outside.failed(now);
        self.inspect_again(key, now);
    }

    /// Whether one of these unannounced groups was there in an earlier search, long enough ago. The next search looks again.
    fn is_suspicion_confirmed(&mut self, key: ProcessKey, extra: HashSet<(u32, u32)>, now: u64) -> bool {
        let before = self.suspected.remove(&key).filter(|before| !before.groups.is_disjoint(&extra));
        let since = before.map_or(now, |before| before.since);
        let is_confirmed = !extra.is_empty() && now.saturating_sub(since) >= UNANNOUNCED_FOR_NS;
        if !extra.is_empty() && !is_confirmed {
            self.suspected.insert(key, Suspicion { since, groups: extra });
        }
        is_confirmed
    }

    /// A process that is scheduled from outside counts as attached again if it has announced exactly the groups that were found, and all of
    /// them are under control. Returns the process.
    pub(super) fn end_misannounced(
        &mut self,
        key: ProcessKey,
        result: &Result<Vec<ControlDescriptor>, Obstacle>,
        groups: &ChannelGroups,
        shared: &mut Shared,
    ) -> Option<ProcessId> {
        let id = shared.processes.find(key)?;
        let found = found_groups(id, result, groups, shared)?;
        let is_complete = groups.has_announced(id, &found) && groups.controls_exactly(id, &found);
        let now = shared.io.now();
        let is_over = self.outside.get(&key).is_none_or(|outside| outside.is_ready(now));
        let process = shared.processes.get_mut(id).filter(|process| process.is_attached())?;
        if !process.misannounced || process.has_unannounced_groups() || !is_complete || !is_over {
            return None;
        }
        (process.misannounced, process.unhooked) = (false, false);
        // What was found may be some seconds old.
        self.inspect_next(key);
        Some(id)
    }

    /// Records that a process maps another page in place of its grant page. It may have attached anew while the page was looked for, so that
    /// only a second finding counts.
    pub(super) fn record_other_page(&mut self, key: ProcessKey, shared: &mut Shared) {
        let mapping = |shared: &Shared| {
            let process = shared.processes.get(shared.processes.find(key)?)?;
            Some((process.client, process.pages.as_ref()?.grant_mapping()?))
        };
        let Some((client, page)) = mapping(shared) else { return };
        let (before, findings) = self.other_pages.entry(key).or_insert((page, 0));
        if *before != page {
            (*before, *findings) = (page, 0);
        }
        *findings += 1;
        if *findings == 2 {
            let what = format!("another page is mapped at {:#x}, where the grant page was", page.address);
            shared.record_violation(client, Some(key.0), ViolationKind::GrantPage, &what);
        }
    }
}

/// The groups that were found in a process, without those that are under control for other processes of the client alone. While its controls fail,
/// a child that has its file open has its groups under control too. `None`: an obstacle hides them.
fn found_groups(
    id: ProcessId,
    result: &Result<Vec<ControlDescriptor>, Obstacle>,
    groups: &ChannelGroups,
    shared: &Shared,
) -> Option<Vec<ContextHandles>> {
    let descriptors = match result {
        Ok(descriptors) => descriptors.as_slice(),
        Err(obstacle) if obstacle.kind == ObstacleKind::NoGroups => &[],
        Err(_) => return None,
    };
    let client = shared.processes.client_of(id)?;
    let others = super::groups::groups_of_others(Some(id), client, groups, shared);
    let found = descriptors.iter().flat_map(|descriptor| &descriptor.contexts);
    let is_its_own = |found: &&ContextHandles| {
        groups.controls(id, found) || !others.iter().any(|other| covers(other, found))
    };
    Some(found.filter(is_its_own).cloned().collect())
}
