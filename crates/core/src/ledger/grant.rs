//! One running grant of a best-effort client: its deadline, the processes under it and their reports.

use super::action::ReturnKind;
use crate::ids::{ClientId, ProcessId};

/// A process under a grant that has not returned it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Member {
    pub(super) process: ProcessId,
    pub(super) joined: u64,
    pub(super) kind: ReturnKind,
    /// It is being disabled.
    pub(super) stopping: bool,
}

impl Member {
    /// Its part ends by timer at the deadline (a peer that cannot send YIELD).
    pub(super) fn ends_by_timer(&self) -> bool {
        self.kind == ReturnKind::ByTimer
    }

    pub(super) fn is_hardware_scheduled(&self) -> bool {
        self.kind == ReturnKind::HardwareScheduled
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Grant {
    pub(super) client: ClientId,
    pub(super) epoch: u64,
    pub(super) start: u64,
    pub(super) deadline: u64,
    /// Time for which its client's virtual time has been advanced already, at extensions.
    pub(super) counted_ns: u64,
    /// Time in which latency-critical clients ran instead.
    pub(super) preempted_ns: u64,
    pub(super) members: Vec<Member>,
    /// Latest end of a member's part so far.
    pub(super) ended: u64,
    /// Reading of the shared clock at the start.
    pub(super) shared_start: u64,
    /// How long its processes had work that did not only wait, since its first quantum began. Time beside other grants is divided by their
    /// number.
    pub(super) executed_ns: u64,
    /// GPU time of the members whose part has ended.
    pub(super) reported: u64,
    /// Time for which its client was enabled.
    ran: u64,
    /// A hardware-scheduled process was under it.
    pub(super) hardware_scheduled: bool,
    /// One of its hardware-scheduled processes reports work that does not only wait. A process that reports none loses the grant soon.
    pub(super) works: bool,
    /// Since when its client is enabled.
    runs_since: Option<u64>,
    /// Time in which another client waited for it. Of a hardware-scheduled grant, without the time in which its processes
    /// reported work.
    pub(super) waited_ns: u64,
    /// What its holders' pages say about whether another client waits.
    pub(super) contended: bool,
    /// The first of its deadlines at which it was not returned, if it went on in a later slot.
    pub(super) missed_at: Option<u64>,
    /// The ledger gave it to a client with short bursts while another client held the GPU.
    pub(super) beside: bool,
}

impl Grant {
    pub(super) fn new(client: ClientId, epoch: u64, start: u64, deadline: u64, shared_start: u64) -> Self {
        Self {
            client,
            epoch,
            start,
            deadline,
            counted_ns: 0,
            preempted_ns: 0,
            members: Vec::new(),
            ended: start,
            shared_start,
            executed_ns: 0,
            reported: 0,
            ran: 0,
            hardware_scheduled: false,
            works: true,
            runs_since: None,
            waited_ns: 0,
            contended: false,
            missed_at: None,
            beside: false,
        }
    }

    /// A process joins it.
    pub(super) fn join(&mut self, member: Member) {
        self.hardware_scheduled |= member.is_hardware_scheduled();
        self.members.push(member);
    }

    /// Changes the kind of a process under it. Time before the process became hardware-scheduled is charged as held.
    pub(super) fn set_kind(&mut self, process: ProcessId, kind: ReturnKind, now: u64) {
        let Some(member) = self.members.iter_mut().find(|member| member.process == process) else { return };
        member.kind = kind;
        if member.is_hardware_scheduled() {
            let held = now.saturating_sub(std::mem::replace(&mut member.joined, now));
            self.reported = self.reported.saturating_add(held);
            self.hardware_scheduled = true;
        }
    }

    /// Ends the part of one process at `at`. `used`: its report; without a report it is charged the time held.
    pub(super) fn leave(&mut self, process: ProcessId, at: u64, used: Option<u64>) -> bool {
        let Some(index) = self.members.iter().position(|m| m.process == process) else { return false };
        let member = self.members.swap_remove(index);
        let held = at.saturating_sub(member.joined);
        let reported = used.map_or(held, |used| used.min(held));
        self.reported =
            self.reported.saturating_add(if member.is_hardware_scheduled() { 0 } else { reported });
        self.ended = self.ended.max(at);
        true
    }

    pub(super) fn ran(&mut self, ns: u64) {
        self.ran = self.ran.saturating_add(ns);
    }

    /// Time passed, of which `part_ns` was at its client's disposal.
    pub(super) fn count_executed(&mut self, part_ns: u64) {
        if self.works {
            self.executed_ns = self.executed_ns.saturating_add(part_ns);
        }
    }

    /// Its client is enabled from `now` on, or not any more.
    pub(super) fn set_running(&mut self, running: bool, now: u64) {
        match (self.runs_since, running) {
            (None, true) => self.runs_since = Some(now),
            (Some(since), false) => {
                self.ran(now.saturating_sub(since));
                self.runs_since = None;
            }
            (None, false) | (Some(_), true) => {}
        }
    }

    pub(super) fn is_running(&self) -> bool {
        self.runs_since.is_some()
    }

    /// Whether latency-critical work runs instead of its work, and not beside it in turns: its groups have short slices, or no work. A
    /// process that reports no work although it has some is not charged for this time, but it soon loses the grant.
    pub(super) fn is_preempted(&self, default_slices: bool) -> bool {
        self.hardware_scheduled && !(default_slices && self.works)
    }

    /// Restarts it at `now`: the time before has been charged.
    pub(super) fn restart(&mut self, now: u64, shared: u64) {
        (self.start, self.ended, self.shared_start) = (now, now, shared);
        (self.reported, self.ran, self.counted_ns, self.preempted_ns) = (0, 0, 0, 0);
        self.waited_ns = 0;
        self.members.iter_mut().for_each(|member| member.joined = now);
    }

    /// Whether all processes under it are hardware-scheduled and none is being disabled.
    pub(super) fn can_continue(&self) -> bool {
        self.members.iter().all(|member| member.is_hardware_scheduled() && !member.stopping)
    }

    /// Wall time that the whole grant lasted, once all members have left.
    pub(super) fn held(&self) -> u64 {
        self.ended.saturating_sub(self.start)
    }

    /// GPU time to charge, never above the time held without that of latency-critical clients: what token-scheduled
    /// processes reported and the time for which hardware-scheduled ones were enabled. A hardware-scheduled process that
    /// was never enabled still made the others wait: it is charged the time held.
    pub(super) fn charge(&self) -> u64 {
        let at_disposal = self.held().saturating_sub(self.preempted_ns);
        if self.hardware_scheduled && self.reported == 0 {
            let ran = if self.ran == 0 { self.held() } else { self.ran };
            return ran.saturating_sub(self.preempted_ns).min(at_disposal);
        }
        self.reported.saturating_add(self.ran).min(at_disposal)
    }

    /// GPU time of the running grant up to `now`, if its processes use all that is at their disposal.
    pub(super) fn running_ns(&self, now: u64) -> u64 {
        let running = self.runs_since.map_or(0, |since| now.saturating_sub(since));
        let held = now.saturating_sub(self.start);
        let used = if self.hardware_scheduled { self.reported + self.ran + running } else { held };
        used.min(held).saturating_sub(self.preempted_ns)
    }

    /// The time at its client's disposal that was not counted yet, when the shared clock reads `shared`. It counts from here on.
    pub(super) fn count_to(&mut self, shared: u64) -> u64 {
        let disposal = shared.saturating_sub(self.shared_start);
        let so_far = disposal.saturating_sub(self.preempted_ns);
        let uncounted = so_far.saturating_sub(self.counted_ns);
        self.counted_ns += uncounted;
        uncounted
    }

    /// When it is revoked: that long after the first deadline that was missed.
    pub(super) fn overdue_at(&self, return_timeout_ns: u64) -> u64 {
        let missed_at = self.missed_at.unwrap_or(self.deadline);
        missed_at.saturating_add(return_timeout_ns)
    }

    /// When the clock, and not a process, next changes this grant.
    pub(super) fn next_event(&self, return_timeout_ns: u64) -> u64 {
        let overdue = self.overdue_at(return_timeout_ns);
        let at_deadline = |m: &Member| m.ends_by_timer() || m.is_hardware_scheduled() && !m.stopping;
        self.members
            .iter()
            .map(|m| if at_deadline(m) { self.deadline } else { overdue })
            .min()
            .unwrap_or(self.start)
    }
}
