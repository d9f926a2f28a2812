//! How each group is to be, as things stand.

use super::control::{GroupId, Setting};
use super::policy::DEFAULT_US;
use super::process::{Process, Turn};
use super::steer::Steering;

impl Steering {
    /// Tells the reconciler how each group is to be.
    pub(super) fn plan(&mut self, now: u64) {
        for process in self.processes.values_mut() {
            let ended_at = process.ended_at.unwrap_or(now);
            process.ended_at = (process.turn == Turn::Ending).then_some(ended_at);
        }
        let critical = self.processes.values().filter(|process| !process.is_best_effort());
        let critical_groups = critical.clone().map(|process| process.groups.len()).sum::<usize>();
        let guarded = critical.count() > 0;
        if guarded {
            self.choose_one(now);
        } else {
            (self.one, self.rotate) = (None, false);
            self.gate.withdraw();
        }
        self.guarded = guarded;
        let long = if critical_groups > 1 { self.policy.shared_us } else { self.policy.long_us };
        for process in self.processes.values() {
            for group in &process.groups {
                let setting = if !process.is_best_effort() {
                    Setting { enabled: true, slice_us: long }
                } else if guarded {
                    Setting { enabled: self.one == Some(*group), slice_us: self.policy.short_us }
                } else {
                    let runs = self.reconciler.may_run(*group);
                    Setting { enabled: self.may_run(process, runs, now), slice_us: DEFAULT_US }
                };
                self.reconciler.want(*group, setting);
            }
        }
    }

    /// Without anybody latency-critical: who holds a grant runs. Who says that it wants nothing is left in peace where it can
    /// only harm itself by that: while nobody waits, nobody else holds a grant, and there is no limit to be kept. If it does not
    /// run yet that can wait, as it is let run as soon as it says that it wants to.
    fn may_run(&self, process: &Process, runs: bool, now: u64) -> bool {
        match process.turn {
            Turn::Granted => true,
            Turn::Idle => self.is_in_peace(process) && (runs || now >= self.budget.ready_at(&self.policy)),
            Turn::Ending => self.goes_on_until(process).is_some_and(|until| now < until),
            Turn::Waiting => false,
        }
    }

    fn is_in_peace(&self, process: &Process) -> bool {
        let alone = self.holders.iter().all(|holder| *holder == process.client);
        alone && !self.contended && !process.limited
    }

    /// Until when a process whose time is up goes on, because the last hand-over has not been earned yet.
    pub(super) fn goes_on_until(&self, process: &Process) -> Option<u64> {
        let late = process.ended_at?.saturating_add(self.policy.late_ns);
        Some(self.budget.ready_at(&self.policy).min(late))
    }

    /// With somebody latency-critical: picks the one best-effort group that runs, and changes it at a good moment only.
    fn choose_one(&mut self, now: u64) {
        let next = self.next_one(now);
        if next == self.one {
            self.rotate = false;
            return self.gate.withdraw();
        }
        // When it has just become present everybody may be running: that cannot wait. Nor need one that runs already.
        let runs = next.is_some_and(|next| self.reconciler.may_run(next));
        let at_once = !self.guarded || self.one.is_none() && runs;
        let critical = self.processes.values().filter(|process| !process.is_best_effort());
        if at_once || self.gate.is_open(&self.policy, now, critical.map(|process| process.activity)) {
            self.one = next;
            self.rotate = false;
            if let Some(group) = next {
                self.chosen += 1;
                self.last_chosen.insert(group, self.chosen);
            }
        }
    }

    fn next_one(&self, now: u64) -> Option<GroupId> {
        let owner = self.one.and_then(|one| self.processes.values().find(|p| p.groups.contains(&one)));
        let goes_on = |owner: &Process| match owner.turn {
            Turn::Granted => !self.rotate,
            Turn::Ending => self.goes_on_until(owner).is_some_and(|until| now < until),
            Turn::Idle | Turn::Waiting => false,
        };
        if owner.is_some_and(goes_on) {
            return self.one;
        }
        let granted = |process: &&Process| process.is_best_effort() && process.turn == Turn::Granted;
        if let Some(group) = self.longest_waiting(self.processes.values().filter(granted)) {
            return Some(group);
        }
        // Nobody has a turn. Who ran last goes on having the GPU to itself unless somebody is to have it.
        let in_peace = |process: &&Process| {
            process.is_best_effort() && process.turn == Turn::Idle && self.is_in_peace(process)
        };
        match owner {
            Some(owner) if in_peace(&owner) => self.one,
            None if !self.guarded => self.longest_waiting(self.processes.values().filter(in_peace)),
            _ => None,
        }
    }

    /// Of the groups of these processes the one that was not chosen for longest; at first one that runs already.
    fn longest_waiting<'p>(&self, processes: impl Iterator<Item = &'p Process>) -> Option<GroupId> {
        let groups = processes.flat_map(|process| process.groups.iter().copied());
        groups.min_by_key(|group| {
            let chosen = self.last_chosen.get(group).copied().unwrap_or(0);
            (chosen, !self.reconciler.may_run(*group), *group)
        })
    }
}
