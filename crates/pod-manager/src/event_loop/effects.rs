//! Carries out the effects that the parts return, requests wake-ups, writes the contenders on the pages and updates the gauges.

use super::EventLoop;
use crate::effect::{Effect, Effects};
use crate::grants::{UNLIMITED_MS, answer_all};
use crate::shared::Shared;
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
                Effect::ReleaseGroups(id) => self.channel_groups.release(id, &mut self.shared),
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

    /// Requests a wake-up from every idle process whose work matters to the scheduler or the gates. Returns `true` if one became busy
    /// before it was asked.
    pub(super) fn request_wakeups(&mut self) -> bool {
        let Shared { clients, processes, io, .. } = &mut self.shared;
        let (now, mut busy) = (io.now(), false);
        for (id, process) in processes.iter_mut() {
            let wanted =
                self.channel_groups.needs_wakeup(id) || self.stream_gates.needs_wakeup(process, clients);
            if process.pages.is_none() || process.wakeups.requested_since.is_some() == wanted {
                continue;
            }
            process.request_wakeups(wanted.then_some(now));
            // What it wrote before the request has woken no thread.
            busy |= wanted && (process.activity().busy || process.has_announced());
        }
        busy
    }

    /// Writes on each page whether the process is latency-critical, and for those that are and for hardware-scheduled ones how many
    /// others may use the GPU. In each round: processes change that without a decision of the ledger.
    pub(super) fn publish_contenders(&self) {
        let Shared { clients, processes, grants, .. } = &self.shared;
        let state = processes.iter().map(|(id, process)| {
            let critical = clients.is_critical(process.client);
            let scheduled = self.channel_groups.is_using_gpu(id);
            let uses =
                scheduled.unwrap_or_else(|| grants.ledger.holds(id) || critical && process.is_attached());
            (process, critical, uses, scheduled.is_some())
        });
        let state: Vec<_> = state.collect();
        let users = state.iter().filter(|(.., uses, _)| *uses).count() as u64;
        for (process, critical, uses, is_hardware_scheduled) in state {
            let Some(page) = process.pages.as_ref().map(|pages| pages.grant()) else { continue };
            let others = if is_hardware_scheduled || critical { users - u64::from(uses) } else { 0 };
            // Only what changes is written: launches read the words beside it.
            if page.latency_critical() != critical {
                page.set_latency_critical(critical);
            }
            if page.contenders() != others {
                page.set_contenders(others);
            }
        }
    }

    /// Updates the gauges, which are about to be read.
    pub(super) fn refresh_gauges(&mut self) {
        self.shared.refresh_shares();
        self.shared.clients.refresh_gauges(&self.shared.processes);
        self.channel_groups.refresh_gauges(&self.shared);
        self.unhooked.refresh_gauges(&self.channel_groups, &self.shared);
    }
}
