//! Steering on the data plane: what processes say of themselves goes in, one control at a time comes out.

use super::DataPlane;
use super::announcement::PutOff;
use super::attach::silence;
use super::departures::Departed;
use crate::channels::{Adopt, ControlFailure, Executor, Order, Report};
use crate::metrics::Level;
use crate::process::{Pages, Process};
use crate::reason::Reason;
use crate::rings::Ring;
use sluice_comm::attach::ContextHandles;
use sluice_comm::page::{PAGE_VERSION, STANDING};
use sluice_core::ledger::Action;
use sluice_core::steering::{Activity, Allowance, Event, GroupId, Op, Outcome, Released, Steering, Turn};
use sluice_core::{ClientId, ProcessId};
use std::collections::{HashMap, HashSet};
use std::time::Duration;
use tracing::{debug, warn};

/// How long the manager's own end waits for everybody to be set free.
const RESTORE_PATIENCE: Duration = Duration::from_secs(1);

/// A group under control.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owned {
    pub(super) process: ProcessId,
    pub(super) pid: Option<i32>,
    /// As it was announced last.
    pub(super) context: ContextHandles,
    /// It was given back, and could not be made free.
    pub(super) stuck: bool,
}

/// What steering needs on the data plane.
pub(super) struct Helm {
    pub(super) steering: Steering,
    /// `None`: controls are switched off.
    pub(super) adopt: Option<Box<dyn Adopt>>,
    pub(super) executor: Executor,
    pub(super) groups: HashMap<GroupId, Owned>,
    /// Processes that were hung up on so that their hooks set them free, by client and pid as far as that is known.
    pub(super) hung_up: HashSet<(ClientId, Option<i32>)>,
    /// What each client may still announce.
    pub(super) allowances: HashMap<ClientId, Allowance>,
    /// What processes will be allowed to announce.
    pub(super) put_off: HashMap<ProcessId, PutOff>,
    /// Processes that have left and whose ends matter all the same.
    pub(super) departed: HashMap<ProcessId, Departed>,
    /// Number of the last group or way to the driver.
    pub(super) last: u64,
}

impl Helm {
    pub(super) fn new(steering: Steering, adopt: Option<Box<dyn Adopt>>, executor: Executor) -> Self {
        Self {
            steering,
            adopt,
            executor,
            groups: HashMap::new(),
            hung_up: HashSet::new(),
            allowances: HashMap::new(),
            put_off: HashMap::new(),
            departed: HashMap::new(),
            last: 0,
        }
    }

    /// When to do something, if nothing else happens.
    pub(super) fn wake_at(&self, now: u64) -> Option<u64> {
        let put_off = self.put_off.values().filter_map(PutOff::at);
        put_off.chain(self.steering.wake_at(now)).min()
    }

    /// Nothing is remembered of a client that will not come back.
    pub(super) fn forget_client(&mut self, id: ClientId) {
        self.allowances.remove(&id);
        self.hung_up.retain(|(client, _)| *client != id);
        self.steering.forget_client(id);
    }
}

impl DataPlane {
    /// Reads what everybody who matters says of himself.
    pub(super) fn observe(&mut self) {
        let watched: Vec<ProcessId> = self.helm.steering.watched().collect();
        for id in watched {
            let activity = self.processes.get(&id).map_or(Activity::UNKNOWN, activity_of);
            self.helm.steering.observe(id, activity);
        }
    }

    /// Takes an action that concerns a process that is steered; `false` if it is for the page.
    pub(super) fn steer(&mut self, action: &Action) -> bool {
        let before = self.helm.steering.turns();
        let taken = self.helm.steering.act(action);
        self.meters.steering.turns.inc_by(self.helm.steering.turns() - before);
        taken
    }

    /// Begins the next control, if there is one to make.
    pub(super) fn control(&mut self) {
        let forced = self.helm.steering.forced();
        if let Some(control) = self.helm.steering.begin(self.clock.now_ns()) {
            debug!(?control, "control");
            self.meters.steering.in_flight.set(1);
            self.helm.executor.order(Order::Make(control));
        }
        self.meters.steering.forced.inc_by(self.helm.steering.forced() - forced);
    }

    /// Lets go of the groups that were given back, whether that took a control or not.
    pub(super) fn let_go(&mut self) {
        for Released { group, is_free } in self.helm.steering.take_released() {
            self.released(group, is_free);
        }
    }

    /// A control has ended.
    pub(super) fn controlled(&mut self, report: &Report) {
        let Report { control, result, took } = report;
        let outcome = match result {
            Ok(()) => Outcome::Done,
            Err(ControlFailure::Gone) => Outcome::Gone,
            Err(ControlFailure::Failed(..)) => Outcome::Failed,
        };
        self.meters.steering.in_flight.set(0);
        self.meters.steering.count(control.op, outcome, *took);
        if control.op == Op::Stop {
            self.meters.preemptions.count(Level::Turn, result.into());
        }
        if let Err(ControlFailure::Failed(_, why)) = result
            && self.throttle.pass("control", self.clock.now_ns()).is_some()
        {
            let owner =
                self.helm.groups.get(&control.group).and_then(|owned| self.processes.get(&owned.process));
            let client = owner.map_or("removed client", |process| self.clients.name(process.client));
            warn!(client, op = ?control.op, "control failed: {why}");
        }
        let failed = self.helm.groups.get(&control.group).map(|owned| owned.process);
        let client = failed.and_then(|id| self.processes.get(&id)).map(|process| process.client);
        let before = client.is_some_and(|client| self.helm.steering.has_given_up(client));
        let events = self.helm.steering.done(outcome, &mut self.tokens, self.clock.now_ns());
        for event in events {
            match event {
                Event::GivenUp(id) => {
                    if failed == Some(id) {
                        self.adopted_failed(id, before);
                    } else {
                        self.take_in_again(id);
                    }
                    self.meters.steering.given_up.inc();
                    let process = self.processes.get(&id);
                    let client =
                        process.map_or("removed client", |process| self.clients.name(process.client));
                    warn!(client, "takes turns by token from now on: a control of it failed");
                    self.follow(id);
                }
                Event::Unsteered(id) => self.follow(id),
                Event::Released(Released { group, is_free }) => self.released(group, is_free),
            }
        }
    }

    /// A group was given back. One that is not free can be freed by its own process only, which does so when it loses us.
    fn released(&mut self, group: GroupId, is_free: bool) {
        let owned = self.helm.groups.get(&group);
        let process = owned.and_then(|owned| self.processes.get(&owned.process));
        let Some(process) = process.filter(|_| !is_free) else { return self.forget_group(group) };
        let (whose, number) = ((process.client, process.pid), process.token);
        self.helm.executor.order(Order::Forget(group));
        if let Some(owned) = self.helm.groups.get_mut(&group) {
            owned.stuck = true;
        }
        let Some(number) = number else { return };
        // It comes back, and if that did not help nothing does.
        if self.helm.hung_up.insert(whose) {
            self.close(number, &Reason::NotFreed);
        }
    }

    /// A group has gone, or is somebody else's affair from now on.
    pub(super) fn forget_group(&mut self, group: GroupId) {
        let owned = self.helm.groups.remove(&group);
        self.helm.steering.forget(group);
        self.helm.executor.order(Order::Forget(group));
        if let Some(owned) = owned {
            self.end_departure(owned.process);
        }
    }

    /// A process has ended: nothing is kept of it, or its memory on the GPU stays where it is.
    pub(super) fn forget_groups(&mut self, id: ProcessId) {
        if let Some(process) = self.processes.get(&id) {
            self.helm.hung_up.remove(&(process.client, process.pid));
        }
        let its = self.helm.groups.iter().filter(|(_, owned)| owned.process == id);
        let its: Vec<GroupId> = its.map(|(group, _)| *group).collect();
        its.into_iter().for_each(|group| self.forget_group(group));
    }

    /// A process has left, or lost us: what could not be set free from here is not waited for.
    pub(super) fn forget_stuck_groups(&mut self, id: ProcessId) {
        let stuck = |owned: &Owned| owned.process == id && owned.stuck;
        let its = self.helm.groups.iter().filter(|(_, owned)| stuck(owned));
        let its: Vec<GroupId> = its.map(|(group, _)| *group).collect();
        its.into_iter().for_each(|group| self.forget_group(group));
    }

    /// A process has hung up: its groups are given back unless it ends.
    pub(super) fn part(&mut self, id: ProcessId) {
        self.helm.put_off.remove(&id);
        self.helm.steering.part(id, &mut self.tokens, self.clock.now_ns());
    }

    /// A process cannot be steered any more: its groups are given back.
    pub(super) fn unsteer(&mut self, id: ProcessId) {
        self.helm.put_off.remove(&id);
        self.helm.steering.leave(id, &mut self.tokens, self.clock.now_ns());
    }

    /// Brings a process's page in line with whether it is steered: who is steered never asks.
    pub(super) fn follow(&mut self, id: ProcessId) {
        let steered = self.helm.steering.turn(id).is_some();
        let Some(process) = self.processes.get_mut(&id).filter(|process| process.steered != steered) else {
            return;
        };
        process.steered = steered;
        if steered {
            return self.stand(id);
        }
        process.set_armed(None);
        if let Some(pages) = &process.pages {
            pages.grant().close();
        }
    }

    /// Arms the doorbells of those who may begin to want the GPU at any time; `true` if one has begun meanwhile.
    pub(super) fn arm(&mut self) -> bool {
        let (now, mut begun) = (self.clock.now_ns(), false);
        // Who matters no more is to ring no more.
        let processes: Vec<ProcessId> = self.processes.keys().copied().collect();
        for id in processes {
            let idle = self.helm.steering.turn(id) == Some(Turn::Idle) || self.holds_the_gates(id);
            let Some(process) = self.processes.get_mut(&id) else { continue };
            if process.pages.is_none() || process.armed.is_some() == idle {
                continue;
            }
            process.set_armed(idle.then_some(now));
            // What it wrote before it was asked to ring has rung nobody.
            begun |= idle && (activity_of(process).busy || has_announced(process));
        }
        begun
    }

    /// Somebody's doorbell: what he has to say is in his page. He is not asked for it again before that was looked at.
    pub(super) fn rang(&mut self, id: ProcessId) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        let asked = process.armed.is_some_and(|since| has_something_to_say(process, since));
        process.set_armed(None);
        let ring = if asked { Ring::Asked } else { Ring::Vain };
        if process.rings.are_too_many(ring, self.clock.now_ns()) {
            // It is looked at often enough without.
            silence(&self.epoll, process);
            warn!(peer = %process.label, ?ring, "rings too often, and is not listened to any more");
        }
    }

    /// Tells everybody whether it is latency-critical, and those that are and those that are steered how many others may use the GPU. In
    /// each round: who comes, leaves or waits changes it without a decision of the ledger's.
    pub(super) fn tell_company(&mut self) {
        let uses = |id: ProcessId, process: &Process, critical: bool| match self.helm.steering.turn(id) {
            Some(turn) => turn != Turn::Idle,
            None => self.tokens.holds(id) || critical && process.token.is_some(),
        };
        let all = self.processes.iter().map(|(id, process)| {
            let critical = self.is_critical(process);
            (process, critical, uses(*id, process, critical))
        });
        let all: Vec<_> = all.collect();
        let users = all.iter().filter(|(.., uses)| *uses).count() as u64;
        for (process, critical, uses) in all {
            let Some(page) = process.pages.as_ref().map(Pages::grant) else { continue };
            let others = if process.steered || critical { users - u64::from(uses) } else { 0 };
            // What stays as it is is not written: its launches read what lies beside it.
            if page.latency_critical() != critical {
                page.set_latency_critical(critical);
            }
            if page.company() != others {
                page.set_company(others);
            }
        }
    }

    /// Sets everybody free, for the manager ends.
    pub(super) fn restore(executor: Executor) {
        if !executor.restore(RESTORE_PATIENCE) {
            warn!("the driver did not let everybody be set free in time; their own hooks will do it");
        }
    }
}

/// What a process says of itself. A hook that does not speak of it is taken to be busy.
pub(super) fn activity_of(process: &Process) -> Activity {
    let pages = process.pages.as_ref().filter(|pages| pages.version == PAGE_VERSION);
    pages.map_or(Activity::UNKNOWN, |pages| {
        let (busy, since_ns) = pages.report().activity();
        Activity { busy, since_ns }
    })
}

/// It has work, or had some or announced some since then.
fn has_something_to_say(process: &Process, since: u64) -> bool {
    let activity = activity_of(process);
    activity.busy || activity.since_ns >= since || has_announced(process)
}

/// It has announced something that was not read yet.
fn has_announced(process: &Process) -> bool {
    let pages = process.pages.as_ref();
    pages.is_some_and(|pages| pages.report().announced_ns() != process.announced_ns)
}

impl DataPlane {
    /// A process that is steered holds a standing grant: who may run is not for its page to say.
    fn stand(&mut self, id: ProcessId) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        if let Some(pages) = &process.pages {
            let epoch = pages.grant().epoch() + 1;
            pages.grant().set_contended(false);
            pages.grant().open(STANDING, STANDING, epoch);
        }
        self.answer_pending(id);
    }
}
