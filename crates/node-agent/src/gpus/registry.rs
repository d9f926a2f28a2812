//! All GPUs of the node: scans and Xids in, inventory and events out. Pure.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use sluice_placement::inventory::NodeInventory;

use super::context_reserve::ContextReserve;
use super::driver::{Condition, DriverUnavailable, Gpu, ScannedGpu};
use super::health::{Fault, Health, Observation};
use super::xid::{Class, Policy};

/// A change of a GPU, for Kubernetes events and counters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GpuEvent {
    /// The driver reported an Xid.
    Xid {
        /// The GPU; `None` if it did not report its identity.
        uuid: Option<String>,
        /// The number; [`super::xid::describe`] explains it.
        code: u64,
        /// Whether the GPU or a program is at fault.
        class: Class,
    },
    /// The GPU gets no new pods.
    Unhealthy {
        /// The GPU.
        uuid: String,
        /// The reason.
        reason: Fault,
    },
    /// The GPU may be used again.
    Healthy {
        /// The GPU.
        uuid: String,
        /// The fault that is over.
        was: Fault,
        /// How long it was not healthy.
        after_ns: u64,
    },
    /// A GPU was seen for the first time.
    Appeared {
        /// The GPU.
        uuid: String,
    },
}

/// A GPU that exists and that Sluice does not share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// The GPU, if it reported its identity.
    pub uuid: Option<String>,
    /// Its ordinal in the driver.
    pub index: u32,
    /// The reason.
    pub reason: Fault,
}

struct RegisteredGpu {
    gpu: Gpu,
    health: Health,
    /// The sequence number of the last fault. A good scan that began earlier does not count.
    last_fault: u64,
    /// The last fault that a scan found, until the GPU is healthy again. [`Health`] keeps the Xid before it as its reason. A fault that
    /// ends work is replaced only by another one: a scan that is late or fails does not show that the GPU is back.
    found: Option<Fault>,
}

/// A scan that has begun: its sequence number, and whether it counts towards recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scan {
    sequence: u64,
    purpose: ScanPurpose,
}

/// Why a scan is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanPurpose {
    /// At its interval: a good scan counts towards recovery.
    Scheduled,
    /// After an event. Such scans may be as frequent as events, so only a bad result counts.
    Prompted,
}

/// All GPUs that were ever seen.
pub struct GpuRegistry {
    policy: Policy,
    needed: NonZeroU32,
    members: Vec<RegisteredGpu>,
    skipped: Vec<Skipped>,
    /// Sequence number of the last scan begun or fault observed, to order the two.
    sequence: u64,
}

impl GpuRegistry {
    /// No GPU yet. `needed` consecutive good scans make an unhealthy GPU healthy again.
    pub fn new(policy: Policy, needed: NonZeroU32) -> Self {
        Self { policy, needed, members: Vec::new(), skipped: Vec::new(), sequence: 0 }
    }

    /// The node's inventory now.
    pub fn inventory(&self, slots_per_gpu: u32, reserve: ContextReserve) -> NodeInventory {
        let mut gpus: Vec<_> = self.members.iter().map(RegisteredGpu::as_inventory).collect();
        for gpu in &mut gpus {
            gpu.memory_total_bytes = Some(gpu.memory_total());
            gpu.memory_bytes -= reserve.bytes(gpu.memory_bytes, slots_per_gpu);
        }
        gpus.sort_by(|one, other| (one.index, &one.uuid).cmp(&(other.index, &other.uuid)));
        NodeInventory::new(slots_per_gpu, gpus)
    }

    /// The GPUs on which no program can work until they are reset, repaired or replaced, by UUID, and why.
    pub fn lost(&self) -> BTreeMap<String, String> {
        let lost = self.members.iter().filter_map(|member| {
            let found = member.found.as_ref().filter(|found| found.ends_work())?;
            let why = match member.health.reason() {
                Some(first) if first != found => format!("{first}; {found}"),
                Some(_) | None => found.to_string(),
            };
            Some((member.gpu.uuid.clone(), why))
        });
        lost.collect()
    }

    /// GPUs that the driver lists and the inventory leaves out.
    pub fn skipped(&self) -> &[Skipped] {
        &self.skipped
    }

    /// Begins a scan; [`Self::finish_scan`] takes its result.
    pub fn begin_scan(&mut self, purpose: ScanPurpose) -> Scan {
        self.sequence += 1;
        Scan { sequence: self.sequence, purpose }
    }

    /// Applies the result of a scan.
    pub fn finish_scan(
        &mut self,
        scan: Scan,
        result: Result<Vec<ScannedGpu>, DriverUnavailable>,
        now_ns: u64,
    ) -> Vec<GpuEvent> {
        let mut events = Vec::new();
        let scanned = match result {
            Ok(scanned) => scanned,
            Err(DriverUnavailable(why)) => {
                for index in 0..self.members.len() {
                    events.extend(self.observe(
                        index,
                        Observation::Bad(Fault::DriverUnavailable(why.clone())),
                        now_ns,
                    ));
                }
                return events;
            }
        };
        self.skipped.clear();
        let mut seen = vec![false; self.members.len()];
        for found_gpu in scanned {
            match found_gpu {
                ScannedGpu::Known(gpu, condition) => {
                    let (index, appeared) = self.find_or_add(gpu);
                    events.extend(appeared);
                    seen.resize(self.members.len(), true);
                    seen[index] = true;
                    events.extend(self.judge(index, condition, scan, now_ns));
                }
                ScannedGpu::NotGiven { uuid, index, why } => match self.find(&uuid) {
                    Some(member) => {
                        seen[member] = true;
                        events.extend(self.observe(member, Observation::Bad(why), now_ns));
                    }
                    None => self.skipped.push(Skipped { uuid: Some(uuid), index, reason: why }),
                },
                // Its identity follows from which GPU is missing.
                ScannedGpu::Unidentified { index, why } => {
                    self.skipped.push(Skipped { uuid: None, index, reason: why })
                }
            }
        }
        let unidentified =
            self.skipped.iter().find(|skipped| skipped.uuid.is_none()).map(|skipped| skipped.reason.clone());
        for index in seen.iter().enumerate().filter(|(_, seen)| !**seen).map(|(index, _)| index) {
            let why = unidentified.clone().unwrap_or(Fault::Vanished);
            events.extend(self.observe(index, Observation::Bad(why), now_ns));
        }
        events
    }

    /// Applies an Xid. A critical Xid without a GPU makes all GPUs unhealthy, because it may belong to any; one of a GPU in MIG mode, all of its
    /// instances.
    pub fn record_xid(&mut self, uuid: Option<&str>, code: u64, now_ns: u64) -> Vec<GpuEvent> {
        let class = self.policy.class(code);
        let mut events = vec![GpuEvent::Xid { uuid: uuid.map(str::to_owned), code, class }];
        if class == Class::Critical {
            let concerned = |member: &RegisteredGpu| {
                let parent = member.gpu.mig.as_ref().map(|instance| instance.parent.as_str());
                uuid.is_none_or(|uuid| member.gpu.uuid == uuid || parent == Some(uuid))
            };
            let concerned: Vec<_> =
                (0..self.members.len()).filter(|index| concerned(&self.members[*index])).collect();
            for index in concerned {
                events.extend(self.observe(index, Observation::CriticalXid(code), now_ns));
            }
        }
        events
    }

    fn find(&self, uuid: &str) -> Option<usize> {
        self.members.iter().position(|member| member.gpu.uuid == uuid)
    }

    fn find_or_add(&mut self, gpu: Gpu) -> (usize, Option<GpuEvent>) {
        if let Some(index) = self.find(&gpu.uuid) {
            self.members[index].gpu = gpu;
            return (index, None);
        }
        let events = GpuEvent::Appeared { uuid: gpu.uuid.clone() };
        self.members.push(RegisteredGpu { gpu, health: Health::Healthy, last_fault: 0, found: None });
        (self.members.len() - 1, Some(events))
    }

    fn judge(&mut self, index: usize, condition: Condition, scan: Scan, now_ns: u64) -> Option<GpuEvent> {
        match condition {
            Condition::Bad(why) => self.observe(index, Observation::Bad(why), now_ns),
            // A good result from before the fault says nothing about the time after it.
            Condition::Good if self.members[index].last_fault > scan.sequence => None,
            Condition::Good if scan.purpose == ScanPurpose::Prompted => None,
            Condition::Good => self.observe(index, Observation::Good, now_ns),
        }
    }

    fn observe(&mut self, index: usize, observation: Observation, now_ns: u64) -> Option<GpuEvent> {
        let needed = self.needed;
        let member = &mut self.members[index];
        if observation != Observation::Good {
            self.sequence += 1;
            member.last_fault = self.sequence;
        }
        if let Observation::Bad(found) = &observation
            && (found.ends_work() || !member.found.as_ref().is_some_and(Fault::ends_work))
        {
            member.found = Some(found.clone());
        }
        let before = std::mem::take(&mut member.health);
        let (was, since) = (before.reason().cloned(), before.since_ns());
        member.health = before.after(observation, now_ns, needed);
        if member.health == Health::Healthy {
            member.found = None;
        }
        let uuid = member.gpu.uuid.clone();
        match (was, member.health.reason()) {
            (Some(was), None) => {
                let after_ns = now_ns.saturating_sub(since.unwrap_or(now_ns));
                Some(GpuEvent::Healthy { uuid, was, after_ns })
            }
            (was, Some(reason)) if was.as_ref() != Some(reason) => {
                Some(GpuEvent::Unhealthy { uuid, reason: reason.clone() })
            }
            _ => None,
        }
    }
}

impl RegisteredGpu {
    fn as_inventory(&self) -> Gpu {
        let reason = self.health.reason().map(ToString::to_string);
        Gpu { healthy: reason.is_none(), unhealthy_reason: reason, ..self.gpu.clone() }
    }
}

#[cfg(test)]
mod tests;
