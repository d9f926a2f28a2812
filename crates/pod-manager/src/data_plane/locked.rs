//! A program without the hook that is held by the driver's lock, for its groups cannot be had.

use super::DataPlane;
use super::announcement::handles_of;
use super::contexts::Allowed;
use crate::adopt::{Locks, Obstacle};
use crate::channels::Order;
use sluice_core::ledger::{Class, PeerKind};
use sluice_core::steering::GroupId;
use sluice_core::{ClientId, ProcessId};
use std::collections::BTreeSet;
use tracing::warn;

impl DataPlane {
    /// Whether the driver's lock is to be had for a client's processes. Who is latency-critical is never stopped.
    pub(super) fn can_lock(&self, client: ClientId) -> bool {
        let class = self.clients.get(client).map(|client| client.definition.spec.class);
        class == Some(Class::BestEffort) && self.adoption.locks.as_ref().is_some_and(Locks::are_ready)
    }

    /// Has a process held by the driver's lock, in place of its groups: as one group, which is stopped by locking and has no slice.
    pub(super) fn lock_instead(&mut self, id: ProcessId, client: ClientId, obstacle: &Obstacle) -> bool {
        let now = self.clock.now_ns();
        let Some(locks) = self.adoption.locks.clone().filter(|_| self.can_lock(client)) else { return false };
        let Some(process) = self.processes.get_mut(&id) else { return false };
        let (Some(pid), Some(pidfd)) = (process.pid, process.pidfd.as_ref()) else { return false };
        let Ok(pidfd) = pidfd.try_clone() else { return false };
        let handles = Locks::handles(pid);
        let mut its = self.helm.groups.iter().filter(|(_, owned)| owned.process == id);
        let is_held = |group: &GroupId| self.helm.steering.owns(id, *group);
        if its.any(|(group, owned)| handles_of(&owned.context) == handles_of(&handles) && is_held(group)) {
            return true;
        }
        process.adopted = true;
        let (peer, key) = (process.label.clone(), process.key);
        if key.is_some_and(|key| self.has_failed(key)) {
            return false;
        }
        let added = self.tokens.add_process(id, client, PeerKind::Returns);
        if added.is_err() || self.may_announce(id, std::slice::from_ref(&handles), now) != Allowed::Now {
            return false;
        }
        let line = self.helm.open(locks.of(pid, pidfd), None);
        let group = self.helm.add(id, Some(pid), line, handles);
        self.helm.executor.order(Order::Close(line));
        let pardoned = self.helm.steering.pardon(client);
        self.helm.steering.announce(
            id,
            (client, Class::BestEffort),
            (vec![group], &BTreeSet::new()),
            &mut self.tokens,
            now,
        );
        self.helm.steering.pardoned_until_now(client, pardoned);
        self.follow(id);
        let (client, reason) = (self.clients.name(client), obstacle.why.label());
        warn!(client, peer, reason, "takes turns by the driver's lock: {obstacle}");
        true
    }
}
