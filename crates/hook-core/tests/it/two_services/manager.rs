//! The manager: reads the reports when it is woken or at its own times, and shows the urgent work.

use super::decode::Decode;
use super::resnet::Resnet;
use sluice_core::channel_groups::Activity;
use sluice_core::deadlines::{DeadlineOrder, DeadlinePolicy, Service, UrgentWork};
use sluice_core::{ClientId, ProcessId};
use sluice_hook_core::burst_admission::UrgentWork as Shown;

/// From a write to the eventfd, or from the time of a timer, until the manager reads the pages.
const WAKE: u64 = 100_000;
const TIMER: u64 = 60_000;
const SLO: u64 = 2_000_000;

pub(super) struct Manager {
    order: DeadlineOrder,
    reads_at: Option<u64>,
    was_busy: bool,
    was_postponed: bool,
}

impl Manager {
    pub(super) fn new() -> Self {
        let order = DeadlineOrder::new(DeadlinePolicy::default());
        Self { order, reads_at: Some(0), was_busy: false, was_postponed: false }
    }

    pub(super) fn step(&mut self, now: u64, resnet: Option<&Resnet>, decode: Option<&mut Decode>) {
        let Some(decode) = decode else { return };
        let busy = resnet.is_some_and(|resnet| resnet.activity.0);
        let begins = busy && !std::mem::replace(&mut self.was_busy, busy);
        self.was_busy = busy;
        let postponed = decode.is_postponed();
        let postpones = postponed && !std::mem::replace(&mut self.was_postponed, postponed);
        self.was_postponed = postponed;
        if begins && self.order.needs_wakeup(ProcessId(1)) || postpones {
            self.reads_at = self.reads_at.into_iter().chain([now + WAKE]).min();
        }
        if self.reads_at.is_none_or(|at| now < at) {
            return;
        }
        let mut services = vec![Service {
            process: ProcessId(2),
            client: ClientId(2),
            slo_ns: 0,
            service_ns: decode.forecast.service_ns,
            activity: Activity { busy: decode.activity.0, since_ns: decode.activity.1 },
            expected_ns: decode.forecast.expected_ns,
            postponed,
            within_request: true,
        }];
        services.extend(resnet.map(|resnet| Service {
            process: ProcessId(1),
            client: ClientId(1),
            slo_ns: SLO,
            service_ns: resnet.forecast.service_ns,
            activity: Activity { busy: resnet.activity.0, since_ns: resnet.activity.1 },
            expected_ns: resnet.forecast.expected_ns,
            postponed: false,
            within_request: true,
        }));
        for (process, urgent) in self.order.update(now, &services) {
            let urgent = match urgent {
                UrgentWork::None => Shown::None,
                UrgentWork::Now => Shown::Now,
                UrgentWork::At(at) => Shown::At(at),
            };
            if process == ProcessId(1) {
                assert_eq!(urgent, Shown::None, "the earlier deadline never waits");
            } else if decode.urgent.0 != urgent {
                decode.urgent = (urgent, now);
            }
        }
        self.reads_at = self.order.wake_at().map(|at| at.max(now) + TIMER);
    }
}
