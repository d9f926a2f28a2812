//! Changes from outside: to the manager, the driver, the processes and the specifications.

use super::manager::Manager;
use super::tenant::{Message, Tenant};
use super::{SimulatedGpu, TenantSpec};
use sluice_core::ProcessId;
use sluice_core::channel_groups::{GroupId, Setting};

/// One change at one time. Changes to tenants without a process are ignored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Change {
    /// The manager makes no step before this time.
    ManagerStops {
        until: u64,
    },
    /// The hooks restore their groups and run without grants, if the manager is still stopped.
    HooksTakeOver,
    /// The manager runs again, unless another stop lasts longer. The hooks give way.
    ManagerResumes,
    /// Another manager starts in place of one that was stopped or has died. It knows nothing, and all processes attach to it.
    ManagerRestarts,
    Freezes(usize),
    Thaws(usize),
    Dies(usize),
    Starts(usize),
    /// The client is removed from the resource file.
    Leaves(usize),
    /// The client is in the resource file again, and its process attaches.
    Returns(usize),
    Joins(TenantSpec),
    Becomes(usize, TenantSpec),
    /// The next kernel takes so long.
    LongKernel(usize, u64),
    ControlsFail {
        until: u64,
    },
}

impl SimulatedGpu {
    /// Adds a change to be made at a time.
    pub(crate) fn schedule(&mut self, at: u64, change: Change) {
        self.changes.push((at, change));
        self.changes.sort_by_key(|(at, _)| *at);
    }

    pub(super) fn make_changes(&mut self) {
        while let Some((_, change)) = self.changes.first().copied().filter(|(at, _)| *at <= self.now) {
            self.changes.remove(0);
            self.make(change);
        }
    }

    fn make(&mut self, change: Change) {
        match change {
            Change::ManagerStops { until } => {
                if self.now >= self.manager.stopped_until {
                    self.manager.stopped_since = self.now;
                }
                self.manager.stopped_until = self.manager.stopped_until.max(until);
            }
            Change::HooksTakeOver => self.hooks_take_over(),
            Change::ManagerResumes if self.now < self.manager.stopped_until => {}
            Change::ManagerResumes => {
                self.hooks_give_way();
                self.rebuild();
            }
            Change::ManagerRestarts => self.restart_manager(),
            Change::Freezes(index) => self.tenants[index].frozen = true,
            Change::Thaws(index) => self.tenants[index].frozen = false,
            Change::Dies(index) => self.end_process(index),
            Change::Starts(index) => self.start_process(index),
            Change::Leaves(index) => {
                self.end_process(index);
                self.tenants[index].is_listed = false;
                self.manager.inbox.push(Message::Configures { tenant: index });
            }
            Change::Returns(index) => {
                self.tenants[index].is_listed = true;
                self.manager.inbox.push(Message::Configures { tenant: index });
                self.start_process(index);
            }
            Change::Joins(spec) => self.join(spec),
            Change::Becomes(index, spec) => {
                self.tenants[index].spec = spec;
                self.manager.inbox.push(Message::Configures { tenant: index });
            }
            Change::LongKernel(index, ns) => self.tenants[index].workload.kernel_left_ns = ns,
            Change::ControlsFail { until } => {
                self.driver.fails_until = self.driver.fails_until.max(until);
            }
        }
    }

    /// A new client with one process.
    pub(super) fn join(&mut self, spec: TenantSpec) {
        let index = self.tenants.len();
        self.tenants.push(Tenant::new(index as u64, spec, self.now));
        self.manager.inbox.push(Message::Configures { tenant: index });
        self.start_process(index);
    }

    fn start_process(&mut self, index: usize) {
        if self.tenants[index].process.is_some() || !self.tenants[index].is_listed {
            return;
        }
        self.processes += 1;
        let (process, group) = (ProcessId(self.processes), GroupId(self.processes));
        self.tenants[index].start(process, group, self.now);
        self.driver.create(group);
        self.manager.inbox.push(Message::Attaches { tenant: index });
    }

    fn end_process(&mut self, index: usize) {
        let tenant = &mut self.tenants[index];
        let Some(process) = tenant.process.take() else { return };
        tenant.close_page();
        tenant.hardware_scheduled = false;
        self.driver.groups.remove(&tenant.group);
        self.manager.inbox.push(Message::Ended { process, group: tenant.group });
    }

    fn restart_manager(&mut self) {
        self.manager = Manager::new();
        for (index, tenant) in self.tenants.iter_mut().enumerate() {
            tenant.detach();
            self.manager.inbox.push(Message::Configures { tenant: index });
            if tenant.process.is_some() {
                self.manager.inbox.push(Message::Attaches { tenant: index });
            }
        }
    }

    /// Each hook restores the default slice of its group before it enables the group.
    fn hooks_take_over(&mut self) {
        if self.now >= self.manager.stopped_until {
            return;
        }
        for tenant in self.tenants.iter_mut().filter(|t| t.process.is_some() && !t.frozen) {
            tenant.free_running = true;
            self.driver.groups.insert(tenant.group, Setting::FREE);
        }
        self.driver.check();
    }

    /// The manager reads the settings of the groups anew.
    fn hooks_give_way(&mut self) {
        for tenant in &mut self.tenants {
            if std::mem::take(&mut tenant.free_running) && tenant.hardware_scheduled {
                self.manager.announce(tenant, self.now);
            }
        }
    }
}
