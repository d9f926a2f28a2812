//! A simulated GPU that groups share as on the hardware, a driver that takes the measured time for each control, and
//! processes with work at fixed times. Tests read each process's GPU time from the simulated GPU.

use super::simulated_process::Process;
pub(super) use super::simulated_process::{TurnWait, Work};
use crate::channel_groups::{
    Activity, ChannelGroupPolicy, ChannelGroupScheduler, Control, ControlOp, ControlOutcome, Event, GroupId,
    Progress, Reconciler, Setting, StallDetector, TINY_SLICE_US,
};
use crate::ledger::{Class, ClientSpec, Policy, ReturnKind, TokenLedger};
use crate::{ClientId, ProcessId, Share};
use std::collections::{BTreeMap, BTreeSet};

pub(super) const US: u64 = 1_000;
pub(super) const MS: u64 = 1_000_000;
pub(super) const S: u64 = 1_000_000_000;

/// Whether no control is in flight and every group has its wanted setting.
pub(super) fn is_settled(reconciler: &Reconciler) -> bool {
    reconciler.in_flight().is_none() && reconciler.clone().begin().is_none()
}

/// A control in flight.
#[derive(Clone, Copy, Debug)]
struct Flight {
    control: Control,
    begun: u64,
    takes_effect_at: u64,
    effective: bool,
    done_at: u64,
    outcome: ControlOutcome,
}

pub(super) struct Simulation {
    pub(super) now: u64,
    pub(super) tokens: TokenLedger,
    pub(super) scheduler: ChannelGroupScheduler,
    pub(super) processes: BTreeMap<ProcessId, Process>,
    /// The setting that each group has on the GPU.
    pub(super) gpu: BTreeMap<GroupId, Setting>,
    /// GPU time that each process used, nanoseconds.
    pub(super) gpu_time: BTreeMap<ProcessId, u64>,
    pub(super) controls: Vec<(u64, u64, Control)>,
    pub(super) events: Vec<Event>,
    /// Processes whose probation has ended, with the time.
    pub(super) restored: Vec<(ProcessId, u64)>,
    /// Processes that report idle even while they have work.
    pub(super) false_idle: BTreeSet<ProcessId>,
    /// Processes that report at all times that their work only waits.
    pub(super) false_waits: BTreeSet<ProcessId>,
    /// GPU time that each process had while others had work, and the counts of switches at the last check.
    contested: BTreeMap<ProcessId, u64>,
    counted: BTreeMap<GroupId, u64>,
    next_check: u64,
    /// The manager sees the end of a kernel only when it wakes: at its own times, at the end of a control, or as a process has a kernel again.
    pub(super) sleeps: bool,
    /// What processes wait for ends whether or not their groups are enabled: copies, for which the hook holds the launch behind them back. A
    /// stream of a disabled group does not go on behind a host function.
    pub(super) waits_end_anyway: bool,
    wakes_at: u64,
    executing: BTreeSet<ProcessId>,
    /// Processes that never report that their work only waits.
    pub(super) reports_no_waits: BTreeSet<ProcessId>,
    /// Latency-critical processes that report that they are host-bound.
    pub(super) host_bound: BTreeSet<ProcessId>,
    /// Latency-critical processes of which the hold kernels lead by a second group's slice.
    pub(super) leading: BTreeSet<ProcessId>,
    /// Processes that neither work nor change their reports.
    pub(super) frozen: BTreeSet<ProcessId>,
    detectors: BTreeMap<ProcessId, StallDetector>,
    /// The result of each control, by its number.
    pub(super) fails: Box<dyn Fn(u64, Control) -> ControlOutcome>,
    pub(super) failures_take_effect: bool,
    /// Controls never end.
    pub(super) hangs: bool,
    /// Controls begun.
    pub(super) begun: u64,
    flight: Option<Flight>,
    random: u64,
}

impl Simulation {
    pub(super) fn new() -> Self {
        Self::with(Policy::default())
    }

    pub(super) fn with(policy: Policy) -> Self {
        Self {
            now: S,
            tokens: TokenLedger::new(policy),
            scheduler: ChannelGroupScheduler::new(ChannelGroupPolicy::default()),
            processes: BTreeMap::new(),
            gpu: BTreeMap::new(),
            gpu_time: BTreeMap::new(),
            controls: Vec::new(),
            events: Vec::new(),
            restored: Vec::new(),
            false_idle: BTreeSet::new(),
            false_waits: BTreeSet::new(),
            contested: BTreeMap::new(),
            counted: BTreeMap::new(),
            next_check: S,
            sleeps: false,
            waits_end_anyway: false,
            wakes_at: 0,
            executing: BTreeSet::new(),
            reports_no_waits: BTreeSet::new(),
            host_bound: BTreeSet::new(),
            leading: BTreeSet::new(),
            frozen: BTreeSet::new(),
            detectors: BTreeMap::new(),
            fails: Box::new(|_, _| ControlOutcome::Done),
            failures_take_effect: false,
            hangs: false,
            begun: 0,
            flight: None,
            random: 1,
        }
    }

    /// Replaces the scheduler by a new one with this policy.
    pub(super) fn set_policy(&mut self, policy: ChannelGroupPolicy) {
        self.scheduler = ChannelGroupScheduler::new(policy);
    }

    pub(super) fn client(&mut self, id: u64, percent: u32, limit: u32, class: Class) {
        let share = |percent| Share::from_ppm(percent * 10_000).unwrap();
        let spec = ClientSpec { request: share(percent), limit: share(limit), class };
        self.tokens.set_client(ClientId(id), spec, self.now);
    }

    /// A best-effort client with one process of one group, all of the same number.
    pub(super) fn best_effort(&mut self, id: u64, percent: u32, work: Work) {
        self.client(id, percent, 100, Class::BestEffort);
        self.process(id, id, &[id], Class::BestEffort, work);
    }

    pub(super) fn critical(&mut self, id: u64, work: Work) {
        self.client(id, 0, 100, Class::LatencyCritical);
        self.process(id, id, &[id], Class::LatencyCritical, work);
    }

    pub(super) fn process(&mut self, id: u64, client: u64, groups: &[u64], class: Class, work: Work) {
        let (process, client) = (ProcessId(id), ClientId(client));
        self.tokens.add_process(process, client, ReturnKind::Returns).unwrap();
        let groups: Vec<GroupId> = groups.iter().map(|group| GroupId(*group)).collect();
        self.gpu.extend(groups.iter().map(|group| (*group, Setting::FREE)));
        self.scheduler.announce(
            process,
            (client, class),
            (groups.clone(), &BTreeSet::new()),
            &mut self.tokens,
            self.now,
        );
        let has_sibling = self.processes.values().any(|other| other.client == client);
        let mut new = Process::new((client, class), groups, work, self.now);
        if has_sibling && matches!(work, Work::InTurn { .. }) {
            new.wait_for_turn(self.now);
        }
        self.processes.insert(process, new);
    }

    /// A process announces only the first `left` of its groups, which may be none.
    pub(super) fn announces_only(&mut self, id: u64, left: usize) {
        let Some(process) = self.processes.get_mut(&ProcessId(id)) else { return };
        process.groups.truncate(left);
        let (groups, class) = (process.groups.clone(), process.class);
        let owner = (process.client, class);
        self.scheduler.announce(ProcessId(id), owner, (groups, &BTreeSet::new()), &mut self.tokens, self.now);
    }

    pub(super) fn dies(&mut self, id: u64) {
        let process = self.processes.remove(&ProcessId(id)).unwrap();
        for group in process.groups {
            self.scheduler.forget_group(group);
            self.gpu.remove(&group);
        }
        self.scheduler.remove_process(ProcessId(id), &mut self.tokens, self.now);
        self.tokens.process_gone(ProcessId(id), self.now);
    }

    /// Advances the simulated time.
    pub(super) fn run(&mut self, ns: u64) {
        let end = self.now + ns;
        self.wakes_at = 0;
        loop {
            self.settle();
            let next = self.next_event().clamp(self.now + 1, end.max(self.now + 1));
            if next > end {
                return;
            }
            self.share_gpu(next);
            self.now = next;
            self.advance_control();
            if self.now == end {
                return self.settle();
            }
        }
    }

    /// Whether the manager has nothing to do.
    fn is_asleep(&mut self) -> bool {
        let executes = |process: &Process| process.waits_since().is_none() && process.activity(self.now).0;
        let executing = self.processes.iter().filter(|(_, process)| executes(process)).map(|(id, _)| *id);
        let before = std::mem::replace(&mut self.executing, executing.collect());
        self.sleeps && self.now < self.wakes_at && self.executing.is_subset(&before)
    }

    fn settle(&mut self) {
        for process in self.processes.values_mut() {
            let is_enabled = |group: &GroupId| self.gpu.get(group).is_some_and(|setting| setting.enabled);
            process.end_wait(self.waits_end_anyway || process.groups.iter().any(is_enabled), self.now);
        }
        if self.is_asleep() {
            return;
        }
        for (id, process) in &mut self.processes {
            let waits_since = process.waits_since().filter(|_| !self.reports_no_waits.contains(id));
            let waits_since = waits_since.or(self.false_waits.contains(id).then_some(S));
            self.scheduler.set_waits(*id, waits_since);
            let (busy, since_ns) = process.activity(self.now);
            let reports_idle = self.false_idle.contains(id);
            let activity =
                Activity { busy: busy && !reports_idle, since_ns: if reports_idle { 0 } else { since_ns } };
            let detector = self.detectors.entry(*id).or_default();
            let can_run = process.groups.iter().any(|group| self.scheduler.reconciler.may_run(*group));
            detector.set_running(can_run, self.now);
            if detector.is_due(self.now) {
                let cpu_ns = if self.frozen.contains(id) { 0 } else { self.now };
                let progress = Progress { cpu_ns, gpu_ns: 0, activity };
                detector.observe(progress, || false, self.now);
            }
            self.scheduler.set_activity(*id, detector.activity(activity));
            self.scheduler.set_wants_default_slices(*id, self.host_bound.contains(id));
            self.scheduler.set_lead(*id, if self.leading.contains(id) { TINY_SLICE_US } else { 0 });
        }
        self.check_switches();
        let restored = self.scheduler.end_probation(&mut self.tokens, self.now);
        self.restored.extend(restored.into_iter().map(|id| (id, self.now)));
        for _ in 0..8 {
            self.scheduler.request_and_return_grants(&mut self.tokens, self.now);
            let actions = self.tokens.advance(self.now);
            if actions.is_empty() {
                break;
            }
            for action in &actions {
                self.scheduler.apply_action(action);
            }
        }
        let released = self.scheduler.take_released();
        self.events.extend(released.into_iter().map(Event::Released));
        if let Some(control) = self.scheduler.begin_control(self.now) {
            self.random =
                self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let spread = |from: u64, to: u64| from + (self.random >> 33) % (to - from);
            let cost = match control.op {
                ControlOp::SetSlice(_) => spread(250 * US, 410 * US),
                ControlOp::Disable => spread(670 * US, 860 * US),
                ControlOp::Enable => spread(220 * US, 300 * US),
            };
            let outcome = (self.fails)(self.begun, control);
            self.begun += 1;
            // The holder runs on during 85 % of the control that disables it.
            let takes_effect_at = self.now + cost * 85 / 100;
            let done_at = if self.hangs { u64::MAX } else { self.now + cost };
            let begun = self.now;
            self.flight =
                Some(Flight { control, begun, takes_effect_at, effective: false, done_at, outcome });
        }
        self.wakes_at = self.wake_up();
    }

    /// When the manager wakes by itself.
    fn wake_up(&self) -> u64 {
        let own = [self.tokens.next_deadline(), self.scheduler.next_wakeup(self.now), Some(self.next_check)];
        own.into_iter().flatten().min().unwrap_or(u64::MAX)
    }

    fn next_event(&self) -> u64 {
        let served = self.served().len().max(1) as u64;
        let work = self.processes.values().map(|process| process.next_change(self.now, served));
        let flight = self.flight.map(|f| if f.effective { f.done_at } else { f.takes_effect_at });
        work.chain(flight).chain([self.wake_up()]).min().unwrap_or(u64::MAX)
    }

    fn advance_control(&mut self) {
        let Some(flight) = &mut self.flight else { return };
        let Control { group, op } = flight.control;
        if self.now >= flight.takes_effect_at && !flight.effective {
            flight.effective = true;
            if flight.outcome == ControlOutcome::Gone {
                self.gpu.remove(&group);
            }
            if (flight.outcome == ControlOutcome::Done || self.failures_take_effect)
                && let Some(setting) = self.gpu.get_mut(&group)
            {
                match op {
                    ControlOp::SetSlice(us) => setting.slice_us = us,
                    ControlOp::Disable => setting.enabled = false,
                    ControlOp::Enable => setting.enabled = true,
                }
            }
            let running = self.gpu.values().filter(|s| s.enabled && s.slice_us < 1000).count();
            assert!(
                running <= 1,
                "{running} groups are enabled with tiny slices at {}: {:?}",
                self.now,
                self.gpu
            );
        }
        if self.now >= flight.done_at {
            let (control, begun, outcome) = (flight.control, flight.begun, flight.outcome);
            self.flight = None;
            self.wakes_at = 0;
            self.controls.push((begun, self.now, control));
            let events = self.scheduler.finish_control(outcome, &mut self.tokens, self.now);
            self.events.extend(events);
        }
    }

    pub(super) fn is_settled(&self) -> bool {
        is_settled(&self.scheduler.reconciler)
    }

    /// Divides the GPU equally among the enabled processes with work. While latency-critical processes have work, only
    /// among those.
    fn share_gpu(&mut self, until: u64) {
        let span = until - self.now;
        let served = self.served();
        for id in &served {
            let part = span.div_ceil(served.len() as u64);
            *self.gpu_time.entry(*id).or_default() += span / served.len() as u64;
            if self.processes.get_mut(id).is_some_and(|process| process.ran(part, until)) {
                self.begin_next_turn(*id, until);
            }
            if served.len() > 1 {
                *self.contested.entry(*id).or_default() += part;
            }
        }
    }

    /// The kernel of a process has ended. That of the next process of its client begins.
    fn begin_next_turn(&mut self, ended: ProcessId, now: u64) {
        let client = self.processes[&ended].client;
        let is_its = |other: &ProcessId| self.processes[other].client == client;
        let its: Vec<ProcessId> = self.processes.keys().copied().filter(is_its).collect();
        let next = its.iter().copied().find(|other| *other > ended).unwrap_or(its[0]);
        self.processes.get_mut(&next).into_iter().for_each(|process| process.begin_turn(now));
    }

    /// Whether a group is enabled in which a process has its kernel.
    pub(super) fn is_enabled(&self, process: &Process) -> bool {
        let in_turn = process.group_in_turn();
        let is_enabled = |group: &GroupId| self.gpu.get(group).is_some_and(|setting| setting.enabled);
        process.groups.iter().filter(|group| in_turn.is_none_or(|of| of == **group)).any(is_enabled)
    }

    /// The manager's check each half second. A group is switched out at the end of each kernel and of each time slice.
    fn check_switches(&mut self) {
        if self.now < self.next_check {
            return;
        }
        self.next_check = self.now + S / 2;
        let before = std::mem::take(&mut self.counted);
        for group in self.scheduler.begin_check(self.now) {
            let owner = self.processes.iter().find(|(_, process)| process.groups.contains(&group));
            let Some((id, process)) = owner else { continue };
            let slices = self.contested.get(id).map_or(0, |ns| ns / (2 * MS));
            let count = process.turns + slices;
            self.counted.insert(group, count);
            if let Some(before) = before.get(&group) {
                let switches = u32::try_from(count - before).unwrap();
                self.scheduler.check_switches(group, switches, self.now);
            }
        }
    }

    /// The processes that the GPU executes.
    fn served(&self) -> Vec<ProcessId> {
        let runs = |id: &ProcessId, process: &Process| {
            process.has_kernel(self.now) && !self.frozen.contains(id) && self.is_enabled(process)
        };
        let ready: Vec<ProcessId> =
            self.processes.iter().filter(|(id, process)| runs(id, process)).map(|(id, _)| *id).collect();
        let critical = |id: &&ProcessId| self.processes[*id].class == Class::LatencyCritical;
        let first: Vec<ProcessId> = ready.iter().filter(critical).copied().collect();
        if first.is_empty() { ready } else { first }
    }

    /// Shares of the GPU time of all best-effort processes, in percent, in the order of their ids.
    pub(super) fn shares(&self) -> Vec<f64> {
        let best_effort = self.processes.iter().filter(|(_, p)| p.class == Class::BestEffort);
        let gpu_time: Vec<u64> =
            best_effort.map(|(id, _)| self.gpu_time.get(id).copied().unwrap_or(0)).collect();
        let sum: u64 = gpu_time.iter().sum();
        gpu_time.iter().map(|gpu_time| 100.0 * *gpu_time as f64 / sum as f64).collect()
    }

    pub(super) fn reset_counts(&mut self) {
        self.gpu_time.clear();
        self.controls.clear();
    }

    pub(super) fn count(&self, which: impl Fn(ControlOp) -> bool) -> usize {
        self.controls.iter().filter(|(_, _, control)| which(control.op)).count()
    }
}
