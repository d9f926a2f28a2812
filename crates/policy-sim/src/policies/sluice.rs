//! Sluice: the token ledger decides, and the channel-group scheduler enforces it by controls that take time. Both are the
//! code of the pod-manager. The GPU takes the enabled groups in turn, each for its time slice. The clients of several GPUs have the slots of
//! gangs, and the controls of all GPUs wait for one driver.

use super::hold::Holds;
use super::runlist::Runlist;
use super::{Decision, Demand, Policy};
use crate::scenario::{Gpu, Scenario};
use sluice_core::channel_groups::{
    Activity, ChannelGroupPolicy, ChannelGroupScheduler, Control, ControlOp, ControlOutcome, GroupId, Setting,
};
use sluice_core::gangs::{GangTable, NodeGangs, Slots, assign};
use sluice_core::ledger::{Action, GrantRequest, Policy as LedgerPolicy, ReturnKind, TokenLedger};
use sluice_core::{ClientId, ProcessId};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;

/// Clock of the ledger at the start. A time of 0 would mean that nothing is known.
const START_NS: u64 = 1_000_000_000;
/// The manager's timers are not finer than this.
const REACTION_NS: u64 = 20_000;
/// Each change of a report wakes the manager here, so that it need not poll the activity every millisecond.
const POLL_NS: u64 = 50_000_000;
/// A latency-critical process reports at the latest after so much GPU time.
const REPORT_NS: u64 = 20_000_000;
/// Rounds of the event loop for one decision.
const ROUNDS: usize = 16;

/// A control in flight.
struct Flight {
    control: Control,
    takes_effect_at: u64,
    is_effective: bool,
    done_at: u64,
}

/// One client with one process of one channel group.
struct Member {
    is_critical: bool,
    setting: Setting,
    /// Its unlimited grant is not revoked.
    may_launch: bool,
    activity: Activity,
    /// GPU time that a latency-critical one has used since its last charge, and the time of that charge.
    used_ns: u64,
    charged_at: u64,
    /// Whether a hold has kept the GPU since that time.
    is_held: bool,
    /// The automatic holds of a latency-critical one.
    holds: Option<Holds>,
}

impl Member {
    /// Whether it has submitted work. One whose launches wait has not.
    fn is_busy(&self, demand: &Demand) -> bool {
        demand.ready && (self.may_launch || demand.started)
    }
}

pub(super) struct Sluice {
    ledger: TokenLedger,
    scheduler: ChannelGroupScheduler,
    members: Vec<Member>,
    flight: Option<Flight>,
    /// Until when the driver of the node makes a control.
    driver: Rc<Cell<u64>>,
    runlist: Runlist,
    /// When the manager's event loop is to run again if no report changes.
    wakes_at: u64,
    /// Which clients are held from the present decision on.
    next_held: Vec<bool>,
}

fn process(client: usize) -> ProcessId {
    ProcessId(client as u64)
}

fn number(id: u64) -> usize {
    usize::try_from(id).unwrap_or(usize::MAX)
}

/// The managers of a node's GPUs. `gpus`: what each has of the scenario.
pub(super) fn for_node(gpus: &[Scenario], with_holds: bool) -> Vec<Box<dyn Policy>> {
    let driver = Rc::new(Cell::new(0));
    let new = |gpu| Sluice::new(gpu, with_holds, Rc::clone(&driver));
    let mut managers: Vec<Sluice> = gpus.iter().map(new).collect();
    let tables = managers.iter().zip(gpus).map(|(manager, gpu)| manager.gang_table(gpu));
    let gangs = assign(&tables.collect::<Vec<_>>());
    managers.iter_mut().zip(gpus).for_each(|(manager, gpu)| manager.set_slots(gpu, &gangs));
    managers.into_iter().map(|manager| Box::new(manager) as Box<dyn Policy>).collect()
}

impl Sluice {
    fn new(scenario: &Scenario, with_holds: bool, driver: Rc<Cell<u64>>) -> Self {
        let (clients, Gpu { slice_ns, .. }) = (&scenario.clients, scenario.gpu);
        let mut ledger = TokenLedger::new(LedgerPolicy::default());
        let mut scheduler = ChannelGroupScheduler::new(ChannelGroupPolicy {
            poll_ns: POLL_NS,
            ..ChannelGroupPolicy::default()
        });
        let mut members = Vec::with_capacity(clients.len());
        for (index, entry) in clients.iter().enumerate() {
            let (client, process) = (ClientId(index as u64), process(index));
            ledger.set_client(client, entry.spec(), START_NS);
            let _ = ledger.add_process(process, client, ReturnKind::Returns);
            let groups = (vec![GroupId(index as u64)], &BTreeSet::new());
            scheduler.announce(process, (client, entry.class), groups, &mut ledger, START_NS);
            let is_critical = entry.class.is_latency_critical();
            if is_critical {
                let _ = ledger.request(process, START_NS, GrantRequest::default());
            }
            members.push(Member {
                is_critical,
                setting: Setting::FREE,
                may_launch: !is_critical,
                activity: Activity { busy: false, since_ns: START_NS },
                used_ns: 0,
                charged_at: START_NS,
                is_held: false,
                holds: (is_critical && with_holds)
                    .then(|| Holds::new(&scenario.workloads[index], scenario.gpu)),
            });
        }
        let runlist = Runlist::new(vec![slice_ns; clients.len()]);
        let next_held = vec![false; clients.len()];
        Self { ledger, scheduler, members, flight: None, driver, runlist, wakes_at: 0, next_held }
    }

    /// What the manager tells the others. All clients have processes from the beginning.
    fn gang_table(&self, gpu: &Scenario) -> GangTable {
        let mut table = GangTable::default();
        for (client, share) in self.ledger.entitled_shares() {
            let name = gpu.clients[number(client.0)].name.clone();
            match share {
                Some(share) => _ = table.shares.insert(name, share),
                None => _ = table.critical.insert(name),
            }
        }
        table
    }

    fn set_slots(&mut self, gpu: &Scenario, gangs: &NodeGangs) {
        let clients = || (0..).map(ClientId).zip(gpu.clients.iter().map(|client| &client.name));
        let slots: Slots = clients().filter_map(|(id, name)| Some((id, *gangs.slots.get(name)?))).collect();
        let critical = clients().filter(|(_, name)| gangs.critical.contains(*name)).map(|(id, _)| id);
        self.ledger.set_slots(slots.in_cycles_of(gangs.cycle_ns).with_critical(critical.collect()));
    }

    /// The control in flight takes effect, and ends.
    fn advance_control(&mut self, now: u64) {
        let Some(flight) = &mut self.flight else { return };
        let Control { group, op } = flight.control;
        if now >= flight.takes_effect_at && !flight.is_effective {
            flight.is_effective = true;
            let index = number(group.0);
            let setting = &mut self.members[index].setting;
            match op {
                ControlOp::SetSlice(us) => {
                    setting.slice_us = us;
                    self.runlist.slices_ns[index] = us.saturating_mul(1_000);
                }
                ControlOp::Disable => setting.enabled = false,
                ControlOp::Enable => setting.enabled = true,
            }
        }
        if now >= flight.done_at {
            self.flight = None;
            self.scheduler.finish_control(ControlOutcome::Done, &mut self.ledger, now);
        }
    }

    fn begin_control(&mut self, now: u64) {
        if self.flight.is_some() || now < self.driver.get() {
            return;
        }
        let Some(control) = self.scheduler.begin_control(now) else { return };
        // Measured (docs/reference/gpu.md §1); a disabled group runs on for most of the time.
        let cost_ns = match control.op {
            ControlOp::SetSlice(_) => 330_000,
            ControlOp::Disable => 765_000,
            ControlOp::Enable => 260_000,
        };
        let takes_effect_at = now + cost_ns * 85 / 100;
        self.driver.set(now + cost_ns);
        self.flight = Some(Flight { control, takes_effect_at, is_effective: false, done_at: now + cost_ns });
    }

    /// Reads what the processes report, and charges latency-critical ones.
    fn read_activity(&mut self, now: u64, demands: &[Demand]) {
        for (index, (member, demand)) in self.members.iter_mut().zip(demands).enumerate() {
            if member.used_ns > 0 {
                let client = ClientId(index as u64);
                self.ledger.charge_unlimited(client, member.charged_at, now, member.used_ns);
                member.used_ns = 0;
            } else if member.is_held {
                self.ledger.count_holds(
                    ClientId(index as u64),
                    member.charged_at,
                    now,
                    now - member.charged_at,
                    false,
                );
            }
            member.charged_at = now;
            let busy = member.is_busy(demand);
            if busy != member.activity.busy {
                member.activity = Activity { busy, since_ns: now };
                self.scheduler.set_activity(process(index), member.activity);
                if busy && member.is_critical {
                    self.ledger.count_bursts(1, u64::MAX);
                }
            }
        }
    }

    /// Rounds of the manager's event loop, until nothing changes.
    fn manage(&mut self, now: u64, demands: &[Demand]) {
        self.advance_control(now);
        for _ in 0..ROUNDS {
            self.read_activity(now, demands);
            self.scheduler.request_and_return_grants(&mut self.ledger, now);
            let actions = self.ledger.advance(now);
            if actions.is_empty() {
                break;
            }
            actions.iter().for_each(|action| self.apply(action));
        }
        self.begin_control(now);
        let ends =
            |flight: &Flight| if flight.is_effective { flight.done_at } else { flight.takes_effect_at };
        let other_gpu = Some(self.driver.get()).filter(|free_at| *free_at > now);
        let flight = self.flight.as_ref().map(ends).or(other_gpu);
        let timers = [self.ledger.next_deadline(), self.scheduler.next_wakeup(now)];
        let timer = timers.into_iter().flatten().min().map(|at| at.max(now + REACTION_NS));
        self.wakes_at = [flight, timer].into_iter().flatten().min().unwrap_or(u64::MAX);
    }

    fn apply(&mut self, action: &Action) {
        if self.scheduler.apply_action(action) {
            return;
        }
        match action {
            Action::Grant { process, .. } => self.members[number(process.0)].may_launch = true,
            Action::Revoke { process, .. } => self.members[number(process.0)].may_launch = false,
            _ => {}
        }
    }
}

impl Policy for Sluice {
    fn decide(&mut self, now: u64, demands: &[Demand]) -> Decision {
        let mut is_due = false;
        let mut hold_at = u64::MAX;
        for (index, demand) in demands.iter().enumerate() {
            let member = &mut self.members[index];
            let is_held = member.holds.as_mut().is_some_and(|holds| {
                holds.update(demand);
                hold_at = hold_at.min(holds.next_event(now).unwrap_or(u64::MAX));
                holds.is_active(now, demand)
            });
            let is_held = is_held && member.may_launch;
            is_due |= is_held != member.is_held
                || member.is_busy(demand) != member.activity.busy
                || member.used_ns >= REPORT_NS;
            self.next_held[index] = is_held;
        }
        let now = now.saturating_add(START_NS);
        if is_due || now >= self.wakes_at {
            self.manage(now, demands);
        }
        for (member, is_held) in self.members.iter_mut().zip(&self.next_held) {
            member.is_held = *is_held;
        }
        let members = &self.members;
        let can_run = |index: usize| {
            let member = &members[index];
            (member.activity.busy || member.is_held) && member.setting.enabled
        };
        let chosen = self.runlist.choose(now, can_run);
        let review_at = chosen.review_at.min(self.wakes_at).saturating_sub(START_NS).min(hold_at);
        let is_held = chosen.client.is_some_and(|client| members[client].is_held && !demands[client].ready);
        Decision { client: chosen.client, review_at, is_held }
    }

    fn ran(&mut self, client: usize, from: u64, to: u64) {
        self.runlist.ran(client, to - from);
        let member = &mut self.members[client];
        if member.is_critical {
            member.used_ns += to - from;
        }
    }

    fn resume(&mut self, since: u64, now: u64) {
        self.wakes_at = 0;
        self.scheduler.rebuild(
            &mut self.ledger,
            since.saturating_add(START_NS),
            now.saturating_add(START_NS),
        );
    }
}
