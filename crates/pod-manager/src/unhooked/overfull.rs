//! Processes that have more descriptors than are searched.
//!
//! The driver may be behind any of them. So such a process is a violation, and is stopped by the driver's lock if that can be used.

use super::Unhooked;
use super::scanning::{Candidate, Obstacle, ObstacleKind};
use crate::shared::Shared;
use crate::violations::ViolationKind;
use sluice_core::ClientId;

impl Unhooked {
    /// Records the violation of a process that has too many descriptors, once.
    pub(super) fn record_overfull(
        &mut self,
        client: ClientId,
        found: &Candidate,
        obstacle: &Obstacle,
        shared: &mut Shared,
    ) {
        if obstacle.kind == ObstacleKind::TooMany && self.overfull.insert(found.key) {
            let (pid, kind) = (Some(found.key.0), ViolationKind::TooManyDescriptors);
            shared.record_violation(client, pid, kind, &obstacle.text);
        }
    }
}
