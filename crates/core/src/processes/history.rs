//! What is remembered of a process of the kernel, whether it is connected or not: a process that attaches anew gains nothing by that.

use super::obstacle::ObstacleKind;
use super::violation::ViolationKind;
use crate::ids::ClientId;
use sluice_rate_limiter::Backoff;
use std::collections::{BTreeMap, BTreeSet};

/// How long a suspicion outlasts the connection of its process.
const SUSPECTED_FOR_NS: u64 = 10_000_000_000;

/// Where a process says that it has mapped its grant page, and which page that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GrantPageMapping {
    /// The address in the process.
    pub address: u64,
    /// The page's inode.
    pub inode: u64,
}

/// Groups of a process that are not under control, and when that was first seen.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Suspicion {
    pub(super) since: u64,
    pub(super) groups: BTreeSet<(u32, u32)>,
}

/// When a check last found something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Finding {
    pub(super) at: u64,
    /// The number of the check if it reads time slices.
    pub(super) check: Option<u64>,
    /// A finding after this time is no repetition.
    pub(super) kept_until: u64,
}

/// What is remembered of one process of the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct History {
    /// The next search inspects it, whether it has changed or not.
    pub(super) is_requested: bool,
    /// It has attached, and has closed that connection.
    pub(super) has_attached: bool,
    /// It has attached and has groups that are not under control.
    pub(super) suspicion: Option<Suspicion>,
    /// It has too many descriptors, and the violation is recorded.
    pub(super) is_overfull: bool,
    /// It maps another page than its grant page, and how often that was found.
    pub(super) other_page: Option<(GrantPageMapping, u32)>,
    /// How long it is scheduled from outside after it had unannounced groups.
    pub(super) outside: Option<Backoff>,
    /// It runs without the hook and is not scheduled, or has attached and cannot be inspected; and why.
    pub(super) unscheduled: Option<(ClientId, ObstacleKind)>,
    /// What checks last found it to do anew.
    pub(super) findings: BTreeMap<ViolationKind, Finding>,
}

impl History {
    /// Whether it says only what each process leaves behind that attaches and ends.
    pub(super) fn is_brief(&self) -> bool {
        let brief =
            Self { is_requested: self.is_requested, has_attached: self.has_attached, ..Self::default() };
        *self == brief
    }

    /// A search begins: forgets what is over. `is_known`: the process is in the table; `is_attached`: its hook announces its groups.
    /// Returns whether the search is to inspect the process.
    pub(super) fn begin_search(&mut self, is_known: bool, is_attached: bool, now: u64) -> bool {
        let is_recent = |suspicion: &Suspicion| now.saturating_sub(suspicion.since) < SUSPECTED_FOR_NS;
        self.suspicion.take_if(|suspicion| !is_attached && !is_recent(suspicion));
        self.other_page.take_if(|_| !is_attached);
        self.is_overfull &= is_known || self.unscheduled.is_some();
        self.outside.take_if(|_| !is_known);
        self.findings.retain(|_, finding| now <= finding.kept_until);
        std::mem::take(&mut self.is_requested) || self.suspicion.is_some()
    }
}
