//! Attached processes: the groups that are found from outside must be those that the process has announced.
//!
//! A second driver library in the process, or a program that has only sent an ATTACH, has groups that no hook announces. Such a process is
//! scheduled as one without the hook from then on, so it stays within its client's share.

use super::Unhooked;
use super::scanning::{Candidate, ControlDescriptor, Obstacle, ObstacleKind, ProcessKey};
use crate::channel_groups::ChannelGroups;
use crate::shared::Shared;
use crate::violations::ViolationKind;
use std::collections::HashSet;

/// How long a group may be unannounced: the driver makes a context in some 200 ms, and the hook announces it afterwards.
const UNANNOUNCED_FOR_NS: u64 = 250_000_000;

/// Groups that a process has not announced, and when they were first seen.
#[derive(Debug)]
pub(super) struct Suspicion {
    since: u64,
    groups: HashSet<(u32, u32)>,
}

impl Unhooked {
    /// Compares the groups of an attached process with those that it has announced. If it has others for some time already, or more
    /// descriptors than are searched, it is a process without the hook for the searches from now on.
    pub(super) fn compare_announced(
        &mut self,
        found: &Candidate,
        result: &Result<Vec<ControlDescriptor>, Obstacle>,
        groups: &ChannelGroups,
        shared: &mut Shared,
    ) {
        let Some(id) = shared.processes.find(found.key) else { return };
        let Some(client) = shared.processes.client_of(id) else { return };
        let (kind, what) = match result {
            Ok(descriptors) => {
                let Some(announced) = groups.announced(id) else { return };
                let of_others = super::groups::handles_of_others(Some(id), client, groups, shared);
                let handles = descriptors.iter().flat_map(ControlDescriptor::handles);
                let extra: HashSet<(u32, u32)> = handles
                    .filter(|group| !announced.contains(group) && !of_others.contains(group))
                    .collect();
                let now = shared.io.now();
                if extra.is_empty() {
                    self.suspected.remove(&found.key);
                    return;
                }
                let suspicion = self
                    .suspected
                    .entry(found.key)
                    .or_insert_with(|| Suspicion { since: now, groups: extra.clone() });
                if suspicion.groups.is_disjoint(&extra) {
                    *suspicion = Suspicion { since: now, groups: extra };
                    return;
                }
                if now.saturating_sub(suspicion.since) < UNANNOUNCED_FOR_NS {
                    return;
                }
                let (extra, announced) = (extra.len(), announced.len());
                let what = format!(
                    "the process has {extra} channel groups beside the {announced} that it announced"
                );
                (ViolationKind::UnannouncedGroups, what)
            }
            Err(obstacle) if obstacle.kind == ObstacleKind::TooMany && self.overfull.insert(found.key) => {
                (ViolationKind::TooManyDescriptors, obstacle.text.clone())
            }
            Err(_) => return,
        };
        self.suspected.remove(&found.key);
        shared.record_violation(client, Some(found.key.0), kind, &what);
        // Without the lock, the groups that it has announced stay under control.
        let is_controllable = result.is_ok() || self.can_lock(client, &shared.clients);
        if let Some(process) = shared.processes.get_mut(id).filter(|_| is_controllable) {
            process.misannounced = true;
            self.inspect_again(found.key, shared.io.now());
        }
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
