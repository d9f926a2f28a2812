//! The manager: hands messages and activity to ledger and channel-group scheduler in the order of the pod-manager's
//! event loop, and carries out their decisions.

use super::tenant::{Message, Tenant};
use super::{Scheduling, SimulatedGpu, clients};
use sluice_core::ProcessId;
use sluice_core::channel_groups::{ChannelGroupPolicy, ChannelGroupScheduler, ControlOutcome, GroupId};
use sluice_core::ledger::{Action, Deadline, GrantEnd, GrantRequest, ReturnKind, TokenLedger};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) struct Manager {
    pub(crate) ledger: TokenLedger,
    pub(crate) scheduler: ChannelGroupScheduler,
    pub(crate) inbox: Vec<Message>,
    pub(crate) outcome: Option<ControlOutcome>,
    /// It makes no step before this time.
    pub(crate) stopped_until: u64,
    /// When it stopped last.
    pub(crate) stopped_since: u64,
    /// GPU time of each latency-critical process up to its last charge, and the time of that charge.
    charged: BTreeMap<ProcessId, (u64, u64)>,
    /// When the last burst of each latency-critical process began.
    bursts: BTreeMap<ProcessId, Option<u64>>,
}

impl Manager {
    pub(crate) fn new() -> Self {
        // The activity of tenants that always have work need not be polled every millisecond.
        let policy = ChannelGroupPolicy { poll_ns: 5_000_000, ..ChannelGroupPolicy::default() };
        Self {
            ledger: TokenLedger::new(clients::ledger_policy()),
            scheduler: ChannelGroupScheduler::new(policy),
            inbox: Vec::new(),
            outcome: None,
            stopped_until: 0,
            stopped_since: 0,
            charged: BTreeMap::new(),
            bursts: BTreeMap::new(),
        }
    }

    pub(crate) fn next_event(&self, now: u64) -> u64 {
        if now < self.stopped_until {
            return self.stopped_until;
        }
        let events = [self.ledger.next_deadline(), self.scheduler.next_wakeup(now)];
        events.into_iter().flatten().min().unwrap_or(u64::MAX)
    }

    /// The client's specification is new or has changed. Latency-critical processes need not request.
    fn set_client(&mut self, tenant: &Tenant, now: u64) {
        self.ledger.set_client(tenant.client, clients::client_spec(&tenant.spec), now);
        self.scheduler.set_class(tenant.client, tenant.spec.class, &mut self.ledger, now);
        if let Some(process) =
            tenant.process.filter(|process| tenant.is_critical() && !self.ledger.holds(*process))
        {
            let _ = self.ledger.request(process, now, GrantRequest::default());
        }
    }

    pub(crate) fn remove_process(&mut self, process: ProcessId, now: u64) {
        self.scheduler.remove_process(process, &mut self.ledger, now);
        self.ledger.process_gone(process, now);
    }

    /// A process announces its group, whose setting is not known.
    pub(crate) fn announce(&mut self, tenant: &Tenant, now: u64) {
        let Some(process) = tenant.process else { return };
        let owner = (tenant.client, tenant.spec.class);
        let groups: Vec<GroupId> = vec![tenant.group];
        self.scheduler.announce(process, owner, (groups, &BTreeSet::new()), &mut self.ledger, now);
    }

    /// Charges a latency-critical client for the GPU time that its process has used since the last time.
    fn charge_critical(&mut self, process: ProcessId, tenant: &Tenant, now: u64) {
        let (before, since) =
            self.charged.insert(process, (tenant.used_ns, now)).unwrap_or((tenant.used_ns, now));
        if tenant.used_ns > before {
            self.ledger.charge_unlimited(tenant.client, since, now, tenant.used_ns - before);
        }
        let begins = tenant.activity.busy.then_some(tenant.activity.since_ns);
        if begins.is_some() && self.bursts.insert(process, begins) != Some(begins) {
            self.ledger.count_bursts(1, u64::MAX);
        }
    }
}

impl SimulatedGpu {
    /// One round of the manager's event loop.
    pub(super) fn manage(&mut self) {
        if self.now < self.manager.stopped_until {
            return;
        }
        for message in std::mem::take(&mut self.manager.inbox) {
            self.deliver(message);
        }
        if let Some(outcome) = self.manager.outcome.take() {
            let Manager { scheduler, ledger, .. } = &mut self.manager;
            scheduler.finish_control(outcome, ledger, self.now);
        }
        for _ in 0..16 {
            self.read_activity();
            let Manager { scheduler, ledger, .. } = &mut self.manager;
            scheduler.request_and_return_grants(ledger, self.now);
            let actions = ledger.advance(self.now);
            if actions.is_empty() {
                break;
            }
            for action in &actions {
                if !self.manager.scheduler.apply_action(action) {
                    self.write_page(action);
                }
            }
        }
        let Manager { scheduler, ledger, .. } = &mut self.manager;
        scheduler.end_probation(ledger, self.now);
        scheduler.take_released();
        if let Some(control) = self.manager.scheduler.begin_control(self.now) {
            self.driver.begin(control, self.now);
        }
        self.update_scheduling();
    }

    /// The manager did not run since it stopped: it takes back all grants, and no setting of a group is known.
    pub(super) fn rebuild(&mut self) {
        let (now, Manager { ledger, scheduler, stopped_since, inbox, .. }) = (self.now, &mut self.manager);
        let since = *stopped_since;
        // It has not yet read which processes ended.
        for message in inbox.iter() {
            if let Message::Ended { process, .. } = message {
                ledger.withdraw(*process, since);
            }
        }
        let by_token = |tenant: &&mut Tenant| !tenant.hardware_scheduled && !tenant.is_critical();
        let mut waiting = Vec::new();
        for tenant in self.tenants.iter_mut().filter(by_token) {
            let Some(process) = tenant.process else { continue };
            ledger.withdraw(process, since);
            tenant.close_page();
            waiting.extend(tenant.waits.then_some(process));
        }
        // The ledger's time does not go back: what happens now comes after all that happened then.
        scheduler.rebuild(ledger, since, now);
        for process in waiting {
            let _ = ledger.request(process, now, GrantRequest::default());
        }
    }

    fn deliver(&mut self, message: Message) {
        let (now, Manager { ledger, scheduler, .. }) = (self.now, &mut self.manager);
        // The process or its client may have gone since.
        match message {
            Message::Configures { tenant } if self.tenants[tenant].is_listed => {
                self.manager.set_client(&self.tenants[tenant], now);
            }
            Message::Configures { tenant } => ledger.remove_client(self.tenants[tenant].client, now),
            Message::Attaches { tenant } => {
                let tenant = &self.tenants[tenant];
                let Some(process) = tenant.process else { return };
                if ledger.add_process(process, tenant.client, ReturnKind::Returns).is_ok()
                    && self.scheduling == Scheduling::Hardware
                {
                    self.manager.announce(tenant, now);
                }
            }
            Message::Requests { process } => {
                let _ = ledger.request(process, now, GrantRequest::default());
            }
            Message::Returns { process, used_ns } => {
                let _ = ledger.returned(process, now, used_ns, 0);
            }
            Message::Ended { process, group } => {
                scheduler.forget_group(group);
                self.manager.remove_process(process, now);
            }
        }
    }

    fn read_activity(&mut self) {
        let now = self.now;
        for tenant in &self.tenants {
            let Some(process) = tenant.process else { continue };
            self.manager.scheduler.set_activity(process, tenant.activity);
            if tenant.is_critical() {
                self.manager.charge_critical(process, tenant, now);
            }
        }
    }

    /// Carries out an action on a grant page.
    fn write_page(&mut self, action: &Action) {
        let tenant_of = |id: ProcessId| move |tenant: &&mut Tenant| tenant.process == Some(id);
        let mut tenants = self.tenants.iter_mut();
        match *action {
            Action::Grant { process, deadline, .. } => {
                let Some(tenant) = tenants.find(tenant_of(process)) else { return };
                tenant.open_page(deadline);
            }
            Action::Extend { process, deadline, .. } => {
                let page = Some(Deadline::At(deadline));
                tenants.find(tenant_of(process)).into_iter().for_each(|tenant| tenant.page = page);
            }
            Action::Revoke { process, .. } => {
                tenants.find(tenant_of(process)).into_iter().for_each(Tenant::close_page);
            }
            Action::Contended { client, contended } => {
                let members = tenants.filter(|tenant| tenant.client == client);
                members.for_each(|tenant| tenant.contended = contended);
            }
            Action::Ended { client, how, .. } if how != GrantEnd::Continued => {
                let members = tenants.filter(|tenant| tenant.client == client);
                members.for_each(|tenant| tenant.contended = false);
            }
            Action::Disable { .. } | Action::Ended { .. } => {}
        }
    }

    /// A process that is no longer hardware-scheduled requests grants by itself.
    fn update_scheduling(&mut self) {
        for tenant in &mut self.tenants {
            let Some(process) = tenant.process else { continue };
            let scheduled = self.manager.scheduler.quantum_state(process).is_some();
            if scheduled != tenant.hardware_scheduled {
                tenant.hardware_scheduled = scheduled;
                tenant.waits = false;
                tenant.close_page();
            }
        }
    }
}
