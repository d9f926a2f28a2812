//! Processes of which all work only waits: for functions of the host, copies, values in memory.
//!
//! Such a process executes nothing, so it leaves its quantum to others. Its groups stay enabled beside the holder if its bursts are short:
//! a stream of a disabled group does not go on, and its next kernel is not to wait for a quantum. That is its own word. So the control
//! executor reads how often the groups were switched out, and a process that has executed more than it was granted is disbelieved.

use super::control::GroupId;
use super::process::{Process, QuantumState};
use super::scheduler::ChannelGroupScheduler;
use crate::ids::ClientId;
use crate::ledger::TokenLedger;
use std::collections::BTreeSet;

/// Switches of a group between two checks that no grant explains: the counts are read a moment after the check was requested. A group that
/// executes all the time beside another one is switched out about 120 times in half a second.
const UNEXPLAINED_SWITCHES: u32 = 16;
/// Grants allow one switch in this time of them together, besides one for each. A time slice is about twice as long.
const ALLOWED_SWITCH_NS: u64 = 1_000_000;
/// For how long a process that has executed more is taken for one that always executes.
const DISBELIEVED_NS: u64 = 64_000_000_000;
/// How many groups one check reads: each read-back takes the driver's locks.
const GROUPS_PER_CHECK: usize = 4;

/// What a process reports about work that only waits, and what follows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Waits {
    /// Since when all of its work only waits, by its report: see [`ChannelGroupScheduler::set_waits`].
    pub(super) reported_since: Option<u64>,
    /// The same where the report counts: not while a latency-critical process works, as two groups at most are enabled then.
    pub(super) since: Option<u64>,
    /// Until when its groups may be enabled beside those of the holder: it has waited a moment ago.
    pub(super) alternates_until: u64,
    /// Until when its report does not count.
    disbelieved_until: u64,
    /// When its present grant was first seen, or last counted.
    pub(super) granted_at: Option<u64>,
    /// Its grants since the last check, and how long they were held.
    grants: u32,
    granted_ns: u64,
    /// How often its grants between the last two checks explain that a group was switched out.
    allowed_switches: u32,
    /// When it was last looked at, if it executed then.
    seen_to_execute_at: Option<u64>,
}

impl Waits {
    /// A grant has ended at `now`: its bursts were switched out.
    pub(super) fn count_grant(&mut self, now: u64) {
        let held_ns = self.granted_at.take().map_or(0, |at| now.saturating_sub(at));
        self.granted_ns = self.granted_ns.saturating_add(held_ns);
        self.grants = self.grants.saturating_add(1);
    }

    /// The manager begins a check. A time slice may end within a burst that is shorter than the slice.
    fn begin_check(&mut self) {
        let granted_ns = std::mem::take(&mut self.granted_ns);
        let ends = u32::try_from(granted_ns / ALLOWED_SWITCH_NS).unwrap_or(u32::MAX);
        self.allowed_switches = std::mem::take(&mut self.grants).saturating_add(ends);
    }
}

impl Process {
    /// How much of the time since the last call it has waited, if it was seen to execute then.
    fn pause_ns(&mut self, now: u64) -> u64 {
        let seen = self.executes().then_some(now);
        let before = std::mem::replace(&mut self.waits.seen_to_execute_at, seen);
        before.zip(self.waits.since).map_or(0, |(before, since)| now.saturating_sub(since.max(before)))
    }
}

impl ChannelGroupScheduler {
    /// Decides which reports of work that only waits count. While a latency-critical process works, at most two best-effort groups are
    /// enabled, and work that waits counts as any other: a stream of a disabled group does not go on.
    pub(super) fn read_waits(&mut self, now: u64) {
        for process in self.processes.values_mut() {
            let counts = process.is_best_effort()
                && process.activity.busy
                && !self.is_guarded
                && now >= process.waits.disbelieved_until;
            let reported = process.waits.reported_since.filter(|_| counts).map(|since| since.min(now));
            if process.quantum == QuantumState::Granted {
                process.waits.granted_at.get_or_insert(now);
            }
            // A process that does not wait any more may have waited until now.
            let has_waited = std::mem::replace(&mut process.waits.since, reported).is_some();
            if has_waited || reported.is_some() {
                process.waits.alternates_until = now.saturating_add(self.policy.idle_ns);
            }
        }
    }

    /// Reports to the ledger for how long processes that were seen to execute have waited since then. The manager sleeps meanwhile: it is woken
    /// when such a process executes again, and not when it begins to wait.
    pub(super) fn leave_pauses_out(&mut self, tokens: &mut TokenLedger, now: u64) {
        for (id, process) in &mut self.processes {
            let pause_ns = process.pause_ns(now);
            if pause_ns > 0 {
                tokens.leave_pause_out(*id, pause_ns);
            }
        }
    }

    /// Reports to the ledger which clients may be granted beside the holder.
    pub(super) fn report_alternating(&self, tokens: &mut TokenLedger, now: u64) {
        let clients: BTreeSet<ClientId> =
            self.hardware_scheduled().map(|(_, process)| process.client).collect();
        for client in clients {
            let processes = self.processes.values().filter(|process| process.client == client);
            let mut with_work = processes.filter(|process| process.activity.busy).peekable();
            let alternates = with_work.peek().is_some() && with_work.all(|process| process.alternates(now));
            tokens.set_alternates(client, alternates && !self.is_guarded);
        }
    }

    /// How long a process with a quantum has executed nothing. One that waits does not count while another process of its client
    /// executes: it may wait for that one.
    pub(super) fn is_unused(&self, process: &Process, now: u64) -> Option<u64> {
        let executes = |other: &Process| {
            other.client == process.client && other.quantum == QuantumState::Granted && other.executes()
        };
        let waits_for_other = || self.hardware_scheduled().any(|(_, other)| executes(other));
        process.idle_for(now).filter(|_| process.waits.since.is_none() || !waits_for_other())
    }

    /// The groups that are enabled beside the holder's because of what their processes report. Call it at each check, with the result for
    /// [`Self::check_switches`].
    pub fn begin_check(&mut self, now: u64) -> Vec<GroupId> {
        let mut groups = Vec::new();
        for process in self.processes.values_mut() {
            if process.quantum == QuantumState::Granted {
                process.waits.count_grant(now);
            }
            process.waits.begin_check();
            let is_beside = self.holders.iter().any(|holder| *holder != process.client);
            if is_beside
                && process.alternates(now)
                && process.has_short_bursts
                && process.is_hardware_scheduled()
            {
                groups.extend(process.groups.iter().copied().filter(|group| self.reconciler.may_run(*group)));
            }
        }
        // A count means something beside that of the check before, so each two checks are about the same groups.
        if groups.len() > GROUPS_PER_CHECK {
            let first = self.checks / 2 * GROUPS_PER_CHECK % groups.len();
            groups.rotate_left(first);
            groups.truncate(GROUPS_PER_CHECK);
        }
        self.checks = self.checks.wrapping_add(1);
        groups
    }

    /// Between the last two checks a group was switched out so many times. `true` if its process is disbelieved from now on.
    pub fn check_switches(&mut self, group: GroupId, switches: u32, now: u64) -> bool {
        let mut owners = self.processes.values_mut().filter(|process| process.groups.contains(&group));
        let Some(process) = owners.next() else { return false };
        let exceeds = switches > process.waits.allowed_switches.saturating_add(UNEXPLAINED_SWITCHES);
        if exceeds {
            process.waits.disbelieved_until = now.saturating_add(DISBELIEVED_NS);
            (process.waits.since, process.waits.alternates_until) = (None, 0);
        }
        exceeds
    }
}
