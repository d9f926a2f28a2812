//! What follows from violations after which a limit does not hold by itself: a process enables its disabled groups, or sets a time slice.
//!
//! A single finding may be the effect of a race. So the policy applies when a process does the same again.

use super::event::{Effect, Step, Violation};
use super::history::Finding;
use super::note::Note;
use super::record::Stop;
use super::table::Processes;
use super::violation::{Checks, Consequence, GroupFinding, ViolationKind};
use crate::ids::ProcessId;
use std::collections::BTreeMap;

/// The policy applies to a violation that follows one of the same kind by the same process within this time.
const REPEATED_WITHIN_NS: u64 = 10_000_000_000;
/// The longest time between two checks of time slices, and the checks in which all groups are read at most: 1,024 groups, 32 a check.
const BETWEEN_CHECKS_NS: u64 = 500_000_000;
const LONGEST_ROUND: u64 = 32;
/// Findings within this time are of one check.
const ONE_CHECK_NS: u64 = 200_000_000;
/// How long a client's process is stopped for the first time. Each further time takes twice as long as the one before.
const FIRST_STOP_NS: u64 = 10_000_000_000;
const LONGEST_STOP_NS: u64 = 600_000_000_000;
/// How often the groups of a process are disabled that it announces no longer while it is stopped. Those that are gone are forgotten then.
const DISABLED_EVERY_NS: u64 = 2_000_000_000;

impl<P, D: Clone + Default> Processes<P, D> {
    /// A check has found something. A process that has closed its channel has enabled its groups itself, as its hook does then.
    pub(super) fn checked(&mut self, finding: &GroupFinding, step: &mut Step<'_, D>) {
        let Some(id) = self.owner(finding.group) else { return };
        let Some(record) = self.get(id) else { return };
        let counts = record.is_attached() || record.state.is_unhooked();
        let is_excused = record.uncertainty.as_ref().is_some_and(|known| known.is_excused(step.now));
        if counts && step.now >= self.unchecked_until && !is_excused {
            self.violated(id, finding, step);
        }
    }

    /// Records the violation of a process, and lets the policy follow.
    fn violated(&mut self, id: ProcessId, finding: &GroupFinding, step: &mut Step<'_, D>) {
        let now = step.now;
        let GroupFinding { kind, what, checks, .. } = finding;
        let Some(record) = self.get_mut(id) else { return };
        let (client, pid, is_stopped) = (record.client, record.pid, record.is_stopped());
        let is_repeated = !is_stopped && is_repeated(&mut record.history.findings, *kind, *checks, now);
        let limit = self.clients.get(&client).map(|client| client.facts.spec.limit).filter(|_| is_repeated);
        let mut consequence =
            limit.map_or(Consequence::Report, |limit| self.policy.violations.consequence(limit));
        let mut what = what.clone();
        if is_stopped {
            self.scheduler.stop_process(id, step.ledger, now);
        } else if consequence != Consequence::Report && self.scheduler.stop_process(id, step.ledger, now) {
            let duration = self.stop(id, now);
            step.effects.push(Effect::StopThreads(id));
            what = format!("{what}; the process is stopped for {} s", duration / 1_000_000_000);
        } else if consequence == Consequence::Stop {
            // It is latency-critical, or has no group under control any more.
            consequence = Consequence::Report;
        }
        step.effects.push(Effect::Violation(Violation { client, pid, kind: *kind, what, consequence }));
    }

    /// Notes that a process is stopped. Returns for how long, nanoseconds.
    fn stop(&mut self, id: ProcessId, now: u64) -> u64 {
        let client = self.client_of(id).and_then(|client| self.clients.get_mut(&client));
        let times = client.map_or(0, |client| {
            client.stops += 1;
            client.stops - 1
        });
        let duration = FIRST_STOP_NS.saturating_mul(1 << times.min(10)).min(LONGEST_STOP_NS);
        let (until, next_disable) = (now.saturating_add(duration), now.saturating_add(DISABLED_EVERY_NS));
        if let Some(record) = self.get_mut(id) {
            record.stop = Some(Stop { until, announcement: None, next_disable });
            self.note_timed(id);
        }
        duration
    }

    /// The threads of a process have stopped, so its groups stay as they are set from now on; or they could not be stopped.
    pub(super) fn threads_stopped(
        &mut self,
        id: ProcessId,
        result: Result<(), String>,
        step: &mut Step<'_, D>,
    ) {
        if self.get(id).is_none_or(|record| !record.is_stopped()) {
            return;
        }
        if let Err(why) = result {
            step.effects.push(Effect::ReleaseThreads(id));
            step.effects.push(Effect::Report(id, Note::ThreadsRun(why)));
        }
        self.scheduler.stop_process(id, step.ledger, step.now);
    }

    /// Releases a process whose time is over, or whose client has become latency-critical. What it has announced last meanwhile counts from
    /// here on.
    pub(super) fn end_stop(&mut self, id: ProcessId, step: &mut Step<'_, D>) {
        let Some(record) = self.get(id) else { return };
        let (is_attached, is_critical) = (record.is_attached(), self.is_critical(record.client));
        let has_ended = |stop: &mut Stop<D>| stop.until <= step.now || is_critical;
        let Some(stop) = self.get_mut(id).and_then(|record| record.stop.take_if(has_ended)) else { return };
        self.scheduler.resume_process(id);
        step.effects.push(Effect::ReleaseThreads(id));
        step.effects.push(Effect::Report(id, Note::StopEnded));
        if let Some(announcement) = stop.announcement.filter(|_| is_attached) {
            self.announced(id, announcement, step);
        }
    }

    /// Stops the processes again whose groups were announced anew, and from time to time those that announce some of theirs no longer.
    pub(super) fn stop_again(&mut self, step: &mut Step<'_, D>) {
        let now = step.now;
        let mut due = Vec::new();
        self.for_each_timed(|id, record| {
            if let Some(stop) = &mut record.stop {
                let is_due = now >= stop.next_disable;
                if is_due {
                    stop.next_disable = now.saturating_add(DISABLED_EVERY_NS);
                }
                due.push((id, is_due));
            }
        });
        for (id, is_due) in due {
            if !self.scheduler.is_stopped(id) || is_due && self.keeps_unannounced(id) {
                self.scheduler.stop_process(id, step.ledger, now);
            }
        }
    }

    /// Whether a stopped process has groups under control that it announces no longer. They may be gone.
    fn keeps_unannounced(&self, id: ProcessId) -> bool {
        let announced = self.get(id).and_then(|record| record.announced.as_ref());
        announced.is_some_and(|announced| self.kept(id, announced) > 0)
    }
}

/// Whether a process has done something again. A program may change the slices of all its groups once, and one check reads a part of
/// them. So a slice counts as changed again only if it was read after the first one was found. The finding is noted for
/// later ones: for a slice for two rounds of the checks at least, because the group is not read sooner.
pub(super) fn is_repeated(
    findings: &mut BTreeMap<ViolationKind, Finding>,
    kind: ViolationKind,
    checks: Option<Checks>,
    now: u64,
) -> bool {
    findings.retain(|_, finding| now <= finding.kept_until);
    let before = findings.get(&kind).copied();
    let is_new = before.is_none_or(|Finding { at, check, .. }| match (checks, check) {
        (Some(checks), Some(check)) => checks.before >= check,
        _ => now.saturating_sub(at) >= ONE_CHECK_NS,
    });
    if is_new {
        let round = checks.map_or(0, |checks| checks.current.saturating_sub(checks.before));
        let two_rounds = 2 * round.min(LONGEST_ROUND) * BETWEEN_CHECKS_NS;
        let kept_until = now.saturating_add(REPEATED_WITHIN_NS.max(two_rounds));
        let check = checks.map(|checks| checks.current);
        findings.insert(kind, Finding { at: now, check, kept_until });
    }
    is_new && before.is_some()
}
