//! One running grant of a best-effort client: its deadline, the processes that run under it, what they report.

use super::action::PeerKind;
use super::policy::UsageSource;
use crate::ids::{ClientId, ProcessId};

/// A process under a grant that has not returned it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Member {
    pub(super) process: ProcessId,
    pub(super) joined: u64,
    pub(super) kind: PeerKind,
    /// It is being stopped.
    pub(super) stopping: bool,
    /// It stands while grants are withheld.
    pub(super) gated: bool,
}

impl Member {
    /// Its part ends at the deadline by itself (a peer that cannot say YIELD).
    pub(super) fn ends_by_timer(&self) -> bool {
        self.kind == PeerKind::ByTimer
    }

    pub(super) fn is_steered(&self) -> bool {
        self.kind == PeerKind::Steered
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Grant {
    pub(super) client: ClientId,
    pub(super) epoch: u64,
    pub(super) start: u64,
    pub(super) deadline: u64,
    /// Until when nobody else waited: when it was last prolonged, or its start.
    pub(super) alone_until: u64,
    pub(super) members: Vec<Member>,
    /// Latest end of a member's part so far.
    pub(super) ended: u64,
    /// Reading of the shared clock at the start.
    pub(super) shared_start: u64,
    /// GPU time of the members whose part has ended.
    reported: u64,
    /// Time the enforcer let it run.
    ran: u64,
    /// A process that is steered was under it.
    pub(super) steered: bool,
    /// One that goes on while grants are withheld was.
    pub(super) ungated: bool,
    /// Since when the enforcer lets it run.
    runs_since: Option<u64>,
    /// Time for which it stood because grants were withheld.
    pub(super) stood_ns: u64,
    /// What its holders' pages say.
    pub(super) contended: bool,
}

impl Grant {
    pub(super) fn new(client: ClientId, epoch: u64, start: u64, deadline: u64, shared_start: u64) -> Self {
        Self {
            client,
            epoch,
            start,
            deadline,
            alone_until: start,
            members: Vec::new(),
            ended: start,
            shared_start,
            reported: 0,
            ran: 0,
            steered: false,
            ungated: false,
            runs_since: None,
            stood_ns: 0,
            contended: false,
        }
    }

    /// A process runs under it from now on.
    pub(super) fn join(&mut self, member: Member) {
        self.steered |= member.is_steered();
        self.ungated |= !member.gated;
        self.members.push(member);
    }

    /// The grant of a process under it ends in another way from now on. What it held until it was steered is charged as held.
    pub(super) fn becomes(&mut self, process: ProcessId, kind: PeerKind, now: u64) {
        let Some(member) = self.members.iter_mut().find(|member| member.process == process) else { return };
        member.kind = kind;
        if member.is_steered() {
            let held = now.saturating_sub(std::mem::replace(&mut member.joined, now));
            self.reported = self.reported.saturating_add(held);
            self.steered = true;
        }
    }

    /// Ends the part of one process at `at`. `used`: what it reported; without a report it is charged what it held.
    pub(super) fn leave(&mut self, process: ProcessId, at: u64, used: Option<u64>) -> bool {
        let Some(index) = self.members.iter().position(|m| m.process == process) else { return false };
        let member = self.members.swap_remove(index);
        let held = at.saturating_sub(member.joined);
        let reported = used.map_or(held, |used| used.min(held));
        self.reported = self.reported.saturating_add(if member.is_steered() { 0 } else { reported });
        self.ended = self.ended.max(at);
        true
    }

    pub(super) fn ran(&mut self, ns: u64) {
        self.ran = self.ran.saturating_add(ns);
    }

    /// The enforcer lets it run from `now` on, or not any more.
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

    /// Begins anew at `now`: what was before has been charged.
    pub(super) fn restart(&mut self, now: u64, shared: u64) {
        (self.start, self.ended, self.alone_until, self.shared_start) = (now, now, now, shared);
        (self.reported, self.ran, self.stood_ns) = (0, 0, 0);
        self.members.iter_mut().for_each(|member| member.joined = now);
    }

    /// Whether all under it are steered, and none is being stopped.
    pub(super) fn can_continue(&self) -> bool {
        self.members.iter().all(|member| member.is_steered() && !member.stopping)
    }

    /// Wall time that the whole grant lasted, once all members have left, without the time for which it stood.
    pub(super) fn held(&self) -> u64 {
        self.ended.saturating_sub(self.start).saturating_sub(self.stood_ns)
    }

    /// GPU time to charge, never above the time held. Who is steered and was not let run at all kept the others waiting all the
    /// same: it is charged what it held.
    pub(super) fn charge(&self, source: UsageSource) -> u64 {
        if self.steered && self.reported == 0 && self.ran == 0 {
            return self.held();
        }
        let used = match source {
            UsageSource::Events => self.reported.saturating_add(self.ran),
            UsageSource::Turn => self.ran,
        };
        used.min(self.held())
    }

    /// When it is not waited for any longer. Who stood had to wait, too.
    pub(super) fn overdue_at(&self, return_timeout_ns: u64) -> u64 {
        self.deadline.saturating_add(return_timeout_ns).saturating_add(self.stood_ns)
    }

    /// When the clock, and not a process, next changes this grant.
    pub(super) fn next_event(&self, return_timeout_ns: u64) -> u64 {
        let overdue = self.overdue_at(return_timeout_ns);
        let at_deadline = |m: &Member| m.ends_by_timer() || m.is_steered() && !m.stopping;
        self.members
            .iter()
            .map(|m| if at_deadline(m) { self.deadline } else { overdue })
            .min()
            .unwrap_or(self.start)
    }
}
