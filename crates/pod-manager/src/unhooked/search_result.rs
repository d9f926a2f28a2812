//! What becomes of the processes that a search has found.

use super::scanning::{Obstacle, ProcessKey, ScanResult};
use super::{SEARCH_INTERVAL_NS, Unhooked, is_named};
use crate::channel_groups::ChannelGroups;
use crate::clients::Process;
use crate::effect::{Effect, Effects};
use crate::party::Party;
use crate::shared::Shared;
use crate::violations::Consequences;
use sluice_core::ClientId;
use tracing::warn;

impl Unhooked {
    /// Applies the result of a search.
    pub(crate) fn search_ended(
        &mut self,
        result: ScanResult,
        groups: &mut ChannelGroups,
        consequences: &Consequences,
        shared: &mut Shared,
    ) -> Effects {
        let mut effects = Effects::new();
        self.is_searching = false;
        let pause = if self.inspect_again.is_empty() { SEARCH_INTERVAL_NS } else { 0 };
        self.next_search = shared.io.now().saturating_add(pause);
        if let Some(candidates) = result.candidates {
            self.unscheduled.retain(|key, _| candidates.contains(key));
            let is_known = |key: &ProcessKey| shared.processes.find(*key).is_some();
            self.attached_before.retain(|key| candidates.contains(key) || is_known(key));
        }
        for key in result.other_page {
            self.record_other_page(key, shared);
        }
        for (found, result) in result.attached {
            self.compare_announced(&found, &result, groups, shared);
            shared.io.closer.close(result);
        }
        for (found, result) in result.inspected {
            let process = shared.processes.find(found.key).and_then(|id| shared.processes.get(id));
            let of_process = || process.map(|process| process.client).filter(|of| is_named(*of, shared));
            let Some(client) = shared.clients.find_by_pod(&found.pod.uid).or_else(of_process) else {
                shared.io.closer.close(result);
                continue;
            };
            // It has attached meanwhile, or it is the process of a client that was removed.
            let attached = |process: &Process| process.is_attached() && !process.misannounced;
            if process.is_some_and(|process| attached(process) || process.client != client) {
                shared.io.closer.close(result);
                self.unscheduled.remove(&found.key);
                continue;
            }
            let is_known = process.is_some();
            if let Err(obstacle) = &result {
                self.record_overfull(client, &found, obstacle, shared);
            }
            // What is found at a stopped process is controlled too, and nothing is released: another process may have made groups on its
            // file, or have closed its descriptors. Its threads may stand in the driver, so it is not locked.
            if shared.processes.find(found.key).is_some_and(|id| consequences.is_stopped(id)) {
                if let Ok(descriptors) = result {
                    let _ = self.take_groups(client, found, descriptors, groups, shared, &mut effects);
                }
                continue;
            }
            if let Some(id) = self.end_misannounced(found.key, &result, groups, shared) {
                shared.io.closer.close(result);
                self.unscheduled.remove(&found.key);
                effects.push(Effect::SchedulingChanged(id));
                continue;
            }
            let (key, command) = (found.key, found.command.clone());
            let taken = match result {
                Ok(descriptors) => self.take_groups(client, found, descriptors, groups, shared, &mut effects),
                Err(obstacle) => {
                    let can_lock = obstacle.kind.can_be_locked() && self.can_lock(client, &shared.clients);
                    if can_lock && !is_known {
                        super::groups::add_process(client, found, shared);
                    }
                    Err(obstacle)
                }
            };
            match taken {
                Ok(()) => drop(self.unscheduled.remove(&key)),
                Err(why) => effects.extend(self.not_scheduled(client, key, &command, &why, groups, shared)),
            }
        }
        effects
    }

    /// Holds a process by the driver's lock if that is possible. Otherwise notes why it is not scheduled, and logs that once.
    fn not_scheduled(
        &mut self,
        client: ClientId,
        key: ProcessKey,
        command: &str,
        obstacle: &Obstacle,
        groups: &mut ChannelGroups,
        shared: &mut Shared,
    ) -> Effects {
        let id = shared.processes.find(key);
        if let Some(id) = id
            && obstacle.kind.can_be_locked()
            && self.lock_instead(id, client, obstacle, groups, shared)
        {
            self.unscheduled.remove(&key);
            return vec![Effect::SchedulingChanged(id)];
        }
        let noted = self.unscheduled.insert(key, (client, obstacle.kind));
        if noted != Some((client, obstacle.kind))
            && shared.io.may_log("unscheduled", Party::Client(client)).is_some()
        {
            let client = shared.clients.name(client);
            let (pid, reason) = (key.0, obstacle.kind.label());
            warn!(
                client,
                pid, command, reason, "process runs without the hook and is not scheduled: {obstacle}"
            );
        }
        id.map_or_else(Effects::new, |id| vec![Effect::ReleaseGroups(id), Effect::SchedulingChanged(id)])
    }
}
