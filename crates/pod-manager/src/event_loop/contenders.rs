//! What each round writes on pages: requests for wake-ups, and for latency-critical and hardware-scheduled processes how many others may
//! use the GPU. There may be thousands of other processes; a round does not visit those.

use super::EventLoop;
use crate::shared::Shared;
use sluice_core::ProcessId;
use std::collections::BTreeSet;

impl EventLoop {
    /// The processes whose pages depend on what others do: those that the scheduler observes, and the latency-critical ones.
    fn concerned(&self) -> BTreeSet<ProcessId> {
        let observed = self.channel_groups.scheduler.observed_processes();
        observed.chain(self.shared.grants.ledger.critical_processes()).collect()
    }

    /// Requests a wake-up from every idle process whose work matters to the scheduler or the gates. Returns `true` if one became busy
    /// before it was asked.
    pub(super) fn request_wakeups(&mut self) -> bool {
        self.marked.extend(self.concerned());
        let Shared { clients, processes, io, .. } = &mut self.shared;
        let (now, mut busy) = (io.now(), false);
        for id in &self.marked {
            let Some(process) = processes.get_mut(*id) else { continue };
            let wanted = self.channel_groups.needs_wakeup(*id, now)
                || self.stream_gates.needs_wakeup(process, clients)
                || self.deadlines.needs_wakeup(*id, process);
            if process.pages.is_none() || process.wakeups.requested_since.is_some() == wanted {
                continue;
            }
            process.request_wakeups(wanted.then_some(now));
            // What it wrote before the request has woken no thread.
            busy |= wanted && (process.activity().busy || process.has_announced());
        }
        busy
    }

    /// Writes on each page whether the process is latency-critical and which slices are in force beside it. For latency-critical and
    /// hardware-scheduled processes it also writes how many others may use the GPU. In each round: processes change that without a decision of the ledger.
    pub(super) fn publish_contenders(&mut self) {
        let concerned = self.concerned();
        self.marked.extend(&concerned);
        if self.marked.is_empty() {
            return;
        }
        let Shared { clients, processes, grants, .. } = &self.shared;
        let mut users = 0;
        let mut state = Vec::with_capacity(self.marked.len());
        for id in &self.marked {
            let Some(process) = processes.get(*id) else { continue };
            let critical = clients.is_critical(process.client);
            let scheduled = self.channel_groups.is_using_gpu(*id);
            let uses =
                scheduled.unwrap_or_else(|| grants.ledger.holds(*id) || critical && process.is_attached());
            users += u64::from(uses);
            state.push((process, critical, uses, scheduled.is_some()));
        }
        // Processes that are not marked use the GPU only under a grant.
        for (client, _) in grants.ledger.holders() {
            let others = processes.of_client(client).filter(|(id, _)| !self.marked.contains(id));
            users += others.filter(|(id, _)| grants.ledger.holds(*id)).count() as u64;
        }
        let default_slices = self.channel_groups.scheduler.default_slices();
        let takes_gpu =
            !default_slices && state.iter().any(|(.., is_hardware_scheduled)| *is_hardware_scheduled);
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
            if page.default_slices() != (critical && default_slices) {
                page.set_default_slices(critical && default_slices);
            }
            if page.takes_gpu() != (critical && takes_gpu) {
                page.set_takes_gpu(critical && takes_gpu);
            }
        }
        // The pages of the others show nothing by now.
        self.marked = concerned;
    }
}
