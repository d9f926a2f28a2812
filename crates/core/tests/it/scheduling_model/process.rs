//! A process of the model: its grant page, its work, and what its work waits for.

use sluice_core::ledger::{Class, Deadline};

/// The grant page of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Page {
    Closed,
    /// Closed; the process has requested a grant.
    Awaited,
    Open(Deadline),
}

/// Whether all work of a process waits for another process or the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Wait {
    /// Its work executes.
    None,
    /// It has waited since this time.
    Since(u64),
    /// What it has waited for since this time has come. Its stream goes on when its group is enabled.
    Over(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Process {
    pub(super) class: Class,
    pub(super) alive: bool,
    pub(super) work: bool,
    pub(super) wait: Wait,
    pub(super) host_bound: bool,
    pub(super) hardware_scheduled: bool,
    pub(super) page: Page,
    /// For so many ticks it does nothing and reports the same activity.
    pub(super) frozen: u8,
    pub(super) since: u64,
    pub(super) used_ns: u64,
    /// What it has sent and the manager has not read: a returned grant, a request.
    pub(super) returns: Option<u64>,
    pub(super) requests: bool,
}
