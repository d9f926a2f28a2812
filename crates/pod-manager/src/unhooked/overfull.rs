//! Processes without the hook that have more descriptors than are searched.
//!
//! The driver may be behind any of them. So such a process is a violation, and is stopped by the driver's lock if that can be used.

use super::Unhooked;
use super::scanning::{Candidate, ControlDescriptor, Obstacle, ObstacleKind};
use crate::shared::Shared;
use crate::violations::ViolationKind;
use sluice_core::ClientId;

impl Unhooked {
    /// Records the violation of a process that has too many descriptors, once. Those of attached processes are recorded where their
    /// groups are compared.
    pub(super) fn record_overfull(
        &mut self,
        client: ClientId,
        found: &Candidate,
        result: &Result<Vec<ControlDescriptor>, Obstacle>,
        shared: &mut Shared,
    ) {
        let Err(Obstacle { kind: ObstacleKind::TooMany, text }) = result else { return };
        let process = shared.processes.find(found.key).and_then(|id| shared.processes.get(id));
        let is_attached = process.is_some_and(|process| process.is_attached());
        if !is_attached && self.overfull.insert(found.key) {
            shared.record_violation(client, Some(found.key.0), ViolationKind::TooManyDescriptors, text);
        }
    }
}
