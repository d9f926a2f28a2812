//! A process without the hook that is held by the driver's lock, because its groups cannot be controlled.

use super::{OtherParts, Unhooked};
use crate::channel_groups::{Admission, handles_of};
use crate::clients::Clients;
use crate::unhooked::scanning::{DriverLocks, Obstacle};
use sluice_core::ledger::{Class, ReturnKind};
use sluice_core::{ClientId, ProcessId};
use std::collections::BTreeSet;
use tracing::warn;

impl Unhooked {
    /// Whether the driver's lock can be used for a client's processes. Latency-critical ones are never locked.
    pub(super) fn can_lock(&self, client: ClientId, clients: &Clients) -> bool {
        clients.class(client) == Some(Class::BestEffort)
            && self.locks.as_ref().is_some_and(DriverLocks::are_ready)
    }

    /// Schedules a process by the driver's lock in place of its groups: it counts as one group, which is disabled by locking and has no
    /// time slice. Returns whether that is so.
    pub(super) fn lock_instead(
        &mut self,
        id: ProcessId,
        client: ClientId,
        obstacle: &Obstacle,
        parts: &mut OtherParts<'_>,
    ) -> bool {
        let now = parts.io.now();
        let Some(locks) = self.locks.clone().filter(|_| self.can_lock(client, parts.clients)) else {
            return false;
        };
        let Some(process) = parts.processes.get_mut(id) else { return false };
        let (Some(pid), Some(pidfd)) = (process.pid, process.pidfd.as_ref()) else { return false };
        let Ok(pidfd) = pidfd.try_clone() else { return false };
        let handles = DriverLocks::placeholder_handles(pid);
        if parts.groups.handles(id).contains(&handles_of(&handles)) {
            return true;
        }
        process.unhooked = true;
        if process.key.is_some_and(|key| self.has_failed(key, now)) {
            return false;
        }
        let added = parts.ledger.add_process(id, client, ReturnKind::Returns);
        let announced = std::slice::from_ref(&handles);
        if added.is_err() || parts.groups.admit(id, announced, parts.processes, parts.io) != Admission::Now {
            return false;
        }
        let descriptor = parts.groups.add_descriptor(locks.control_of(pid, pidfd), None);
        let group = parts.groups.add(id, Some(pid), descriptor, handles);
        parts.groups.seal_descriptor(descriptor);
        let scheduler = &mut parts.groups.scheduler;
        let pardoned = scheduler.clear_failure(client);
        let owner = (client, Class::BestEffort);
        scheduler.announce(id, owner, (vec![group], &BTreeSet::new()), parts.ledger, now);
        scheduler.restore_failure(client, pardoned);
        let (client, peer) = (parts.clients.name(client), parts.processes.label(id));
        let reason = obstacle.kind.label();
        warn!(client, peer, reason, "process is scheduled by the driver's lock: {obstacle}");
        true
    }
}
