//! A tenant: one client with one process. It speaks the token protocol while it is not hardware-scheduled.

use super::arrivals::Workload;
use super::clients::TenantSpec;
use sluice_core::channel_groups::{Activity, GroupId};
use sluice_core::ledger::{Class, Deadline};
use sluice_core::{ClientId, ProcessId};

/// GPU time of the kernel that is in progress when a grant ends.
pub(super) const KERNEL_NS: u64 = 500_000;
/// How long a holder may be idle before it returns its grant: while another client waits, and otherwise.
const IDLE_NS: (u64, u64) = (2_000_000, 20_000_000);

/// What a tenant sends to the manager.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Message {
    /// The resource file has changed for a tenant's client.
    Configures {
        tenant: usize,
    },
    Attaches {
        tenant: usize,
    },
    Requests {
        process: ProcessId,
    },
    Returns {
        process: ProcessId,
        used_ns: u64,
    },
    Ended {
        process: ProcessId,
        group: GroupId,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct Tenant {
    pub(crate) spec: TenantSpec,
    pub(crate) client: ClientId,
    /// Its client is in the resource file.
    pub(crate) is_listed: bool,
    /// Its process; `None` while it has none.
    pub(crate) process: Option<ProcessId>,
    pub(crate) group: GroupId,
    pub(crate) workload: Workload,
    /// Activity that it reports. It does not change while the tenant is frozen.
    pub(crate) activity: Activity,
    pub(crate) hardware_scheduled: bool,
    /// The deadline on its grant page; `None`: closed.
    pub(crate) page: Option<Deadline>,
    pub(crate) waits: bool,
    draining: bool,
    /// Time for which work of it was on the GPU, under the present grant or since it started.
    pub(crate) used_ns: u64,
    pub(crate) contended: bool,
    pub(crate) frozen: bool,
    /// It runs without a grant, because the manager is lost.
    pub(crate) free_running: bool,
}

impl Tenant {
    pub(crate) fn new(number: u64, spec: TenantSpec, now: u64) -> Self {
        Self {
            spec,
            client: ClientId(number),
            is_listed: true,
            process: None,
            group: GroupId(0),
            workload: Workload::new(spec.arrivals, now),
            activity: Activity { busy: false, since_ns: now },
            hardware_scheduled: false,
            page: None,
            waits: false,
            draining: false,
            used_ns: 0,
            contended: false,
            frozen: false,
            free_running: false,
        }
    }

    pub(crate) fn is_critical(&self) -> bool {
        self.spec.class == Class::LatencyCritical
    }

    /// Whether it gives way to latency-critical tenants on the GPU.
    pub(crate) fn has_shortest_slice(&self) -> bool {
        self.hardware_scheduled && !self.free_running
    }

    /// A new process starts.
    pub(crate) fn start(&mut self, process: ProcessId, group: GroupId, now: u64) {
        *self = Self { process: Some(process), group, ..Self::new(self.client.0, self.spec, now) };
    }

    /// Its manager has gone. The process attaches to the next one as a new process does.
    pub(crate) fn detach(&mut self) {
        self.close_page();
        (self.hardware_scheduled, self.waits, self.free_running, self.contended) =
            (false, false, false, false);
    }

    /// The page is closed. A process that has work requests a grant again.
    pub(crate) fn close_page(&mut self) {
        (self.page, self.draining) = (None, false);
    }

    pub(crate) fn open_page(&mut self, deadline: Deadline) {
        (self.page, self.draining, self.waits) = (Some(deadline), false, false);
        if !self.is_critical() {
            self.used_ns = 0;
        }
    }

    /// Whether its launch gate is open, or a kernel that passed it has not ended.
    pub(crate) fn may_submit(&self, now: u64) -> bool {
        let open = self.page.is_some_and(|page| match page {
            Deadline::At(deadline) => now < deadline,
            Deadline::Unlimited => true,
        });
        self.hardware_scheduled || self.free_running || open || self.workload.kernel_left_ns > 0
    }

    /// Whether it has submitted work. A latency-critical tenant whose launch gate is closed has not.
    fn is_busy(&self, now: u64) -> bool {
        self.workload.has_work() && (!self.is_critical() || self.may_submit(now))
    }

    /// Whether it acts on what the manager wrote last.
    pub(crate) fn reacts(&self, now: u64) -> bool {
        let requests = self.page.is_none() && !self.waits && self.workload.has_work();
        let requests = requests && !self.hardware_scheduled && !self.free_running;
        self.process.is_some() && !self.frozen && (requests || self.is_busy(now) != self.activity.busy)
    }

    fn idle_ends_at(&self) -> Option<u64> {
        let allowed = if self.contended { IDLE_NS.0 } else { IDLE_NS.1 };
        (!self.activity.busy).then(|| self.activity.since_ns + allowed)
    }

    /// When it acts next, if nothing but time changes.
    pub(crate) fn next_event(&self, now: u64) -> Option<u64> {
        if self.frozen || self.process.is_none() {
            return None;
        }
        let ends = match self.page {
            Some(Deadline::At(deadline)) if !self.hardware_scheduled && !self.free_running => {
                let deadline = (now < deadline).then_some(deadline);
                [deadline, self.idle_ends_at()].into_iter().flatten().min()
            }
            _ => None,
        };
        [ends, self.workload.next_arrival()].into_iter().flatten().min()
    }

    /// Takes note of its work and does what the protocol demands.
    pub(crate) fn step(&mut self, now: u64) -> Vec<Message> {
        let Some(process) = self.process.filter(|_| !self.frozen) else { return Vec::new() };
        self.workload.arrive(now);
        let busy = self.workload.has_work();
        if self.is_busy(now) != self.activity.busy {
            self.activity = Activity { busy: self.is_busy(now), since_ns: now };
        }
        let mut messages = Vec::new();
        if self.hardware_scheduled || self.free_running {
            return messages;
        }
        if let Some(Deadline::At(deadline)) = self.page {
            if now >= deadline && !self.draining {
                self.draining = true;
                let kernel_ns = if busy { KERNEL_NS } else { 0 };
                self.workload.kernel_left_ns = self.workload.kernel_left_ns.max(kernel_ns);
            }
            let idle = self.idle_ends_at().is_some_and(|at| at <= now);
            if idle || self.draining && self.workload.kernel_left_ns == 0 {
                self.close_page();
                messages.push(Message::Returns { process, used_ns: self.used_ns });
            }
        }
        if self.page.is_none() && busy && !self.waits {
            self.waits = true;
            messages.push(Message::Requests { process });
        }
        messages
    }
}
