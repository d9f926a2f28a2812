//! The processes: the table and state machine of [`sluice_core::processes`], with the manager's end of each process.

mod busy_meter;
mod departed;
mod endpoint;
mod host_memory;
mod numa;
mod pages;

pub(crate) use departed::Departed;
pub(crate) use endpoint::{Endpoint, MAX_UNANSWERED};
pub(crate) use host_memory::HostMemory;
pub(crate) use pages::Pages;

use crate::announcement::Descriptors;
use crate::metrics::EnforcementLevel;
use sluice_core::channel_groups::Activity;
use sluice_core::processes::{self, GrantPageMapping};
use sluice_core::{ProcessId, ProcessKey};

/// The table of all processes.
pub(crate) type Processes = processes::Processes<Endpoint, Descriptors>;
/// One of them.
pub(crate) type Process = processes::Record<Endpoint, Descriptors>;
/// What happens to them.
pub(crate) type Event = processes::Event<Endpoint, Descriptors>;
/// What the event loop does about it.
pub(crate) type Effect = processes::Effect<Descriptors>;

/// The activity that a process reports, as far as its report counts.
pub(crate) fn activity(process: &Process) -> Activity {
    process.endpoint.activity(!process.state.is_misannounced())
}

/// The pages of a process, if it has attached.
pub(crate) fn pages(processes: &Processes, id: ProcessId) -> Option<&Pages> {
    processes.get(id)?.endpoint.pages.as_ref()
}

/// The process's name for logs.
pub(crate) fn label(processes: &Processes, id: ProcessId) -> &str {
    processes.get(id).map_or("", |process| &process.endpoint.label)
}

/// Where each attached process has mapped its grant page, by key.
pub(crate) fn grant_pages(processes: &Processes) -> Vec<(ProcessKey, GrantPageMapping)> {
    let attached = processes.iter().filter(|(_, process)| process.is_attached());
    let mapping = |process: &Process| Some((process.key?, process.endpoint.pages.as_ref()?.grant_mapping()?));
    let mut mappings: Vec<_> = attached.filter_map(|(_, process)| mapping(process)).collect();
    mappings.sort_by_key(|(key, _)| *key);
    mappings
}

/// What enforces the share of a process: `None` without pages or controlled groups.
pub(crate) fn enforcement_level(processes: &Processes, id: ProcessId) -> Option<EnforcementLevel> {
    let process = processes.get(id)?;
    let is_controlled = processes.scheduler.has_controlled_groups(id);
    if process.state.is_unhooked() && is_controlled {
        return Some(EnforcementLevel::Full);
    }
    process.endpoint.pages.as_ref()?;
    Some(if is_controlled { EnforcementLevel::Full } else { EnforcementLevel::Token })
}

/// Brings what the scheduler knows of the activity, and of the wanted slices, of the processes that matter to it up to date.
pub(crate) fn read_activity(processes: &mut Processes) {
    let observed: Vec<ProcessId> = processes.scheduler.observed_processes().collect();
    for id in observed {
        let process = processes.get(id);
        let reported = process.map_or(Activity::UNKNOWN, activity);
        let wants = process.is_some_and(|process| process.endpoint.wants_default_slices());
        let waits_since =
            process.and_then(|process| process.endpoint.waits_since(!process.state.is_misannounced()));
        let at_once = process.and_then(|process| process.endpoint.contexts_at_once_since());
        let lead_ns = process.map_or(0, |process| process.endpoint.lead_ns());
        processes.scheduler.set_activity(id, reported);
        processes.scheduler.set_waits(id, waits_since);
        processes.scheduler.set_lead(id, lead_ns / 1_000);
        processes.scheduler.set_contexts_at_once(id, at_once);
        processes.scheduler.set_wants_default_slices(id, wants);
    }
}
