//! Carries out the effects that the parts return, and updates the gauges.

use super::EventLoop;
use crate::effect::{Effect, Effects};
use crate::grants::{UNLIMITED_MS, answer_all};
use sluice_core::ProcessId;

impl EventLoop {
    /// Carries out effects in their order.
    pub(super) fn carry_out(&mut self, effects: Effects) {
        for effect in effects {
            match effect {
                Effect::Answer { connection, request, body } => {
                    if let Err(reason) = self.connections.answer(connection, request, body) {
                        self.close(connection, &reason);
                    }
                }
                Effect::SchedulingChanged(id) => self.show_scheduling(id),
                Effect::ReleaseGroups(id) => self.channel_groups.release_groups(id, &mut self.shared),
                Effect::DepartureSettled(id) => self.settle_departure(id),
                Effect::InspectAgain(id) => {
                    let unhooked = self.shared.processes.get(id).filter(|process| process.unhooked);
                    if let Some(key) = unhooked.and_then(|process| process.key) {
                        self.unhooked.inspect_again(key, self.shared.io.now());
                    }
                }
            }
        }
    }

    /// Brings a process's page in line with how it is scheduled: a hardware-scheduled process holds an unlimited grant and never asks
    /// for one.
    pub(super) fn show_scheduling(&mut self, id: ProcessId) {
        self.stream_gates.process_changed(id);
        let is_hardware_scheduled = self.channel_groups.is_hardware_scheduled(id);
        let Some(process) = self.shared.processes.get_mut(id) else { return };
        let shows_hardware_grant = process.pages.as_ref().is_some_and(|pages| pages.shows_hardware_grant);
        if shows_hardware_grant == is_hardware_scheduled {
            return;
        }
        if is_hardware_scheduled {
            if let Some(pages) = &mut process.pages {
                pages.show_hardware_grant();
            }
            let effects = answer_all(id, UNLIMITED_MS, &mut self.shared.processes);
            return self.carry_out(effects);
        }
        process.request_wakeups(None);
        if let Some(pages) = &mut process.pages {
            pages.shows_hardware_grant = false;
            pages.grant().close();
        }
    }

    /// Updates the gauges, which are about to be read.
    pub(super) fn refresh_gauges(&mut self) {
        self.shared.refresh_shares();
        self.shared.clients.refresh_gauges(&self.shared.processes);
        self.channel_groups.refresh_gauges(&self.shared);
        self.consequences.refresh_gauges(&self.shared);
        self.unhooked.refresh_gauges(&self.channel_groups, &self.shared);
    }
}
