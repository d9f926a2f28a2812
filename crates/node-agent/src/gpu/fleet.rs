//! All GPUs of the node: what was seen and heard goes in, the inventory and the news come out. Pure.

use std::num::NonZeroU32;

use sluice_placement::inventory::{self, NodeInventory};

use super::health::{Health, Observation, Sickness};
use super::source::{Condition, Gpu, NoDriver, Sighting};
use super::xid::{Class, Policy};

/// Something that happened to a GPU, for events and counters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// The driver reported an Xid.
    Xid {
        /// The GPU; none if it did not say who it is.
        uuid: Option<String>,
        /// The number; [`super::xid::describe`] has words for it.
        code: u64,
        /// Whose fault it is.
        class: Class,
    },
    /// No new pods on this GPU.
    Unhealthy {
        /// The GPU.
        uuid: String,
        /// Why.
        reason: Sickness,
    },
    /// The GPU may be used again.
    Healthy {
        /// The GPU.
        uuid: String,
        /// What had been wrong.
        was: Sickness,
        /// How long it had not been healthy.
        after_ns: u64,
    },
    /// A GPU was seen for the first time.
    Appeared {
        /// The GPU.
        uuid: String,
    },
}

/// A GPU that is there and is not ours to share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// The GPU, if it says who it is.
    pub uuid: Option<String>,
    /// Its ordinal in the driver.
    pub index: u32,
    /// Why.
    pub reason: Sickness,
}

struct Member {
    gpu: Gpu,
    health: Health,
    /// Where in the order of things it was last said to be sick: looks that began before do not count as good.
    last_fault: u64,
}

/// A look that has begun: its place in the order of things, and whether it counts towards recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    place: u64,
    purpose: Purpose,
}

/// Why somebody looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// It was time: a good look counts towards recovery.
    Scheduled,
    /// Something was heard. Such looks may follow each other as fast as reports do, so only what is bad counts.
    Prompted,
}

/// All GPUs that were ever seen.
pub struct Fleet {
    policy: Policy,
    needed: NonZeroU32,
    members: Vec<Member>,
    skipped: Vec<Skipped>,
    /// Counts looks begun and faults observed, to tell what came before what.
    place: u64,
}

impl Fleet {
    /// No GPU seen yet. `needed` is how many good looks in a row make a sick GPU healthy again.
    pub fn new(policy: Policy, needed: NonZeroU32) -> Self {
        Self { policy, needed, members: Vec::new(), skipped: Vec::new(), place: 0 }
    }

    /// The node's inventory as it is.
    pub fn inventory(&self, seats_per_gpu: u32) -> NodeInventory {
        let mut gpus: Vec<_> = self.members.iter().map(Member::as_inventory).collect();
        gpus.sort_by(|one, other| (one.index, &one.uuid).cmp(&(other.index, &other.uuid)));
        NodeInventory::new(seats_per_gpu, gpus)
    }

    /// GPUs that the driver lists and the inventory does not have.
    pub fn skipped(&self) -> &[Skipped] {
        &self.skipped
    }

    /// A look begins; [`Self::looked`] takes its result.
    pub fn begin(&mut self, purpose: Purpose) -> Look {
        self.place += 1;
        Look { place: self.place, purpose }
    }

    /// Takes in the result of a look.
    pub fn looked(&mut self, look: Look, result: Result<Vec<Sighting>, NoDriver>, now_ns: u64) -> Vec<News> {
        let mut news = Vec::new();
        let sightings = match result {
            Ok(sightings) => sightings,
            Err(NoDriver(why)) => {
                for index in 0..self.members.len() {
                    news.extend(self.observe(
                        index,
                        Observation::Bad(Sickness::NoDriver(why.clone())),
                        now_ns,
                    ));
                }
                return news;
            }
        };
        self.skipped.clear();
        let mut seen = vec![false; self.members.len()];
        for sighting in sightings {
            match sighting {
                Sighting::Known(gpu, condition) => {
                    let (index, appeared) = self.find_or_add(gpu);
                    news.extend(appeared);
                    seen.resize(self.members.len(), true);
                    seen[index] = true;
                    news.extend(self.judge(index, condition, look, now_ns));
                }
                Sighting::Mig { uuid, index } => match self.find(&uuid) {
                    Some(member) => {
                        seen[member] = true;
                        news.extend(self.observe(member, Observation::Bad(Sickness::Mig), now_ns));
                    }
                    None => self.skipped.push(Skipped { uuid: Some(uuid), index, reason: Sickness::Mig }),
                },
                // Who it is shows in who is missing.
                Sighting::Mute { index, why } => {
                    self.skipped.push(Skipped { uuid: None, index, reason: why })
                }
            }
        }
        let mute =
            self.skipped.iter().find(|skipped| skipped.uuid.is_none()).map(|skipped| skipped.reason.clone());
        for index in seen.iter().enumerate().filter(|(_, seen)| !**seen).map(|(index, _)| index) {
            let why = mute.clone().unwrap_or(Sickness::Vanished);
            news.extend(self.observe(index, Observation::Bad(why), now_ns));
        }
        news
    }

    /// Takes in an Xid. One of an unknown GPU may be any's: where it is critical, all are suspected.
    pub fn heard(&mut self, uuid: Option<&str>, code: u64, now_ns: u64) -> Vec<News> {
        let class = self.policy.class(code);
        let mut news = vec![News::Xid { uuid: uuid.map(str::to_owned), code, class }];
        if class == Class::Critical {
            let concerned = |member: &Member| uuid.is_none_or(|uuid| member.gpu.uuid == uuid);
            let concerned: Vec<_> =
                (0..self.members.len()).filter(|index| concerned(&self.members[*index])).collect();
            for index in concerned {
                news.extend(self.observe(index, Observation::CriticalXid(code), now_ns));
            }
        }
        news
    }

    fn find(&self, uuid: &str) -> Option<usize> {
        self.members.iter().position(|member| member.gpu.uuid == uuid)
    }

    fn find_or_add(&mut self, gpu: Gpu) -> (usize, Option<News>) {
        if let Some(index) = self.find(&gpu.uuid) {
            self.members[index].gpu = gpu;
            return (index, None);
        }
        let news = News::Appeared { uuid: gpu.uuid.clone() };
        self.members.push(Member { gpu, health: Health::Healthy, last_fault: 0 });
        (self.members.len() - 1, Some(news))
    }

    fn judge(&mut self, index: usize, condition: Condition, look: Look, now_ns: u64) -> Option<News> {
        match condition {
            Condition::Bad(why) => self.observe(index, Observation::Bad(why), now_ns),
            // What was seen before the fault was reported does not speak against it.
            Condition::Good if self.members[index].last_fault > look.place => None,
            Condition::Good if look.purpose == Purpose::Prompted => None,
            Condition::Good => self.observe(index, Observation::Good, now_ns),
        }
    }

    fn observe(&mut self, index: usize, observation: Observation, now_ns: u64) -> Option<News> {
        let needed = self.needed;
        let member = &mut self.members[index];
        if observation != Observation::Good {
            self.place += 1;
            member.last_fault = self.place;
        }
        let before = std::mem::take(&mut member.health);
        let (was, since) = (before.reason().cloned(), before.since_ns());
        member.health = before.after(observation, now_ns, needed);
        let uuid = member.gpu.uuid.clone();
        match (was, member.health.reason()) {
            (Some(was), None) => {
                let after_ns = now_ns.saturating_sub(since.unwrap_or(now_ns));
                Some(News::Healthy { uuid, was, after_ns })
            }
            (was, Some(reason)) if was.as_ref() != Some(reason) => {
                Some(News::Unhealthy { uuid, reason: reason.clone() })
            }
            _ => None,
        }
    }
}

impl Member {
    fn as_inventory(&self) -> inventory::Gpu {
        let Gpu { uuid, index, model, memory_bytes, numa, pci, nvlink } = self.gpu.clone();
        let reason = self.health.reason().map(ToString::to_string);
        inventory::Gpu {
            uuid,
            index,
            model,
            memory_bytes,
            numa,
            pci,
            nvlink,
            healthy: reason.is_none(),
            unhealthy_reason: reason,
        }
    }
}

#[cfg(test)]
#[path = "fleet_tests.rs"]
mod tests;
