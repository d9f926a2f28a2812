//! The wanted setting of each group in the present state.

use super::control::{GroupId, Setting};
use super::policy::DEFAULT_SLICE_US;
use super::process::{Process, QuantumState};
use super::scheduler::ChannelGroupScheduler;

impl ChannelGroupScheduler {
    /// Gives the reconciler the wanted setting of each group.
    pub(super) fn plan(&mut self, now: u64) {
        for process in self.processes.values_mut() {
            let ended_at = process.ended_at.unwrap_or(now);
            process.ended_at = (process.quantum == QuantumState::Ending).then_some(ended_at);
        }
        self.observe_work(now);
        let is_guarded = self.working_critical(now).next().is_some();
        let working_groups =
            self.working_critical(now).map(|process| process.controlled_groups().len()).sum::<usize>();
        if is_guarded {
            self.choose_enabled_group(now);
        } else {
            (self.enabled_group, self.rotate) = (None, false);
            self.window.withdraw();
        }
        self.is_guarded = is_guarded;
        self.choose_slices(now);
        if is_guarded {
            self.choose_second_group(now);
        } else {
            self.second.withdraw();
        }
        let critical_us = self.slices.critical_us(&self.policy, working_groups);
        let best_effort_us = self.slices.best_effort_us(&self.policy);
        for process in self.processes.values() {
            for group in &process.groups {
                let setting = if process.stays_disabled() {
                    Setting { enabled: false, slice_us: DEFAULT_SLICE_US }
                } else if process.on_probation {
                    Setting::FREE
                } else if !process.is_best_effort() {
                    Setting { enabled: true, slice_us: critical_us }
                } else if is_guarded {
                    let enabled = self.enabled_group == Some(*group) || self.second.is(*group);
                    Setting { enabled, slice_us: self.second.slice_us(*group, best_effort_us) }
                } else {
                    let enabled = self.reconciler.may_run(*group);
                    Setting { enabled: self.may_run(process, enabled, now), slice_us: DEFAULT_SLICE_US }
                };
                self.reconciler.want(*group, setting);
            }
        }
    }

    /// Whether a process may run while no latency-critical process works: the holder of a grant does.
    ///
    /// An idle process keeps its channel groups enabled where a false report harms itself alone: no client waits, no
    /// other client holds a grant, and its client has no limit. Enabling a disabled idle process can wait: it is
    /// enabled when it reports work. One with short bursts keeps them enabled beside the holder while its work waits.
    fn may_run(&self, process: &Process, enabled: bool, now: u64) -> bool {
        match process.quantum {
            QuantumState::Granted => true,
            QuantumState::Idle => {
                let may_be_enabled = enabled || now >= self.control_ready_at();
                self.may_stay_enabled(process) && may_be_enabled
                    || enabled && process.has_short_bursts && process.alternates(now)
            }
            QuantumState::Ending => self.extended_until(process).is_some_and(|until| now < until),
            QuantumState::Waiting => false,
        }
    }

    fn may_stay_enabled(&self, process: &Process) -> bool {
        let alone = self.holders.iter().all(|holder| *holder == process.client);
        alone && !self.contended && !process.limited && !process.stays_disabled()
    }

    /// Until when a quantum that has ended is extended, because the controls of the last hand-off are not earned yet.
    pub(super) fn extended_until(&self, process: &Process) -> Option<u64> {
        let latest = process.ended_at?.saturating_add(self.policy.max_extension_ns);
        Some(self.control_ready_at().min(latest))
    }

    /// Chooses the first best-effort group that is enabled while a latency-critical process works. The group changes
    /// only while the hand-off window is open.
    fn choose_enabled_group(&mut self, now: u64) {
        let next = self.next_group(now);
        if next == self.enabled_group {
            self.rotate = false;
            return self.window.withdraw();
        }
        // When a latency-critical process has just begun to work, all groups may be enabled: that cannot wait. A group that
        // is enabled already need not wait.
        let enabled = next.is_some_and(|next| self.reconciler.may_run(next));
        let at_once = !self.is_guarded || self.enabled_group.is_none() && enabled;
        let critical = self.processes.values().filter(|process| !process.is_best_effort());
        if at_once || self.window.is_open(&self.policy, now, critical.map(|process| process.activity)) {
            self.enabled_group = next;
            self.rotate = false;
            if let Some(group) = next {
                self.second.becomes_first(group);
                self.count_choice(group);
            }
        }
    }

    /// Counts that a group was chosen, to choose the others before it the next time.
    pub(super) fn count_choice(&mut self, group: GroupId) {
        let latest = self.last_choice.values().max().copied().unwrap_or(0);
        self.last_choice.insert(group, latest + 1);
    }

    fn next_group(&self, now: u64) -> Option<GroupId> {
        let is_owner = |process: &&Process| self.enabled_group.is_some_and(|g| process.groups.contains(&g));
        let owner = self.processes.values().find(is_owner).filter(|owner| !owner.stays_disabled());
        let continues = |owner: &Process| match owner.quantum {
            QuantumState::Granted => !self.rotate,
            QuantumState::Ending => self.extended_until(owner).is_some_and(|until| now < until),
            // Its client works in the second group.
            QuantumState::Idle | QuantumState::Waiting => self.second_continues(now),
        };
        if owner.is_some_and(continues) {
            return self.enabled_group;
        }
        let granted = |process: &&Process| {
            process.is_hardware_scheduled()
                && process.quantum == QuantumState::Granted
                && !process.stays_disabled()
        };
        if let Some(group) = self.least_recently_chosen(self.processes.values().filter(granted)) {
            return Some(group);
        }
        // No process has a quantum. The group that ran last stays enabled unless another one is to run.
        let may_stay = |process: &&Process| {
            process.is_hardware_scheduled()
                && process.quantum == QuantumState::Idle
                && self.may_stay_enabled(process)
        };
        match owner {
            Some(owner) if may_stay(&owner) => self.enabled_group,
            None if !self.is_guarded => self.least_recently_chosen(self.processes.values().filter(may_stay)),
            _ => None,
        }
    }

    /// The group of these processes that was chosen least recently; at first one that is enabled already.
    fn least_recently_chosen<'p>(&self, processes: impl Iterator<Item = &'p Process>) -> Option<GroupId> {
        let groups = processes.flat_map(|process| process.groups.iter().copied());
        groups.min_by_key(|group| {
            let choice = self.last_choice.get(group).copied().unwrap_or(0);
            (choice, !self.reconciler.may_run(*group), *group)
        })
    }
}
