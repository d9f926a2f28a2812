//! What a pod demands, and what it was assigned, from its annotations and its spec. The extender and
//! `kubectl sluice` read pods by these functions, so that they count the same.

use std::collections::BTreeMap;
use std::fmt;

use super::{Amount, GpuRequest, Mistake, Mistakes, assigned, keys};
use crate::demand::Demand;

/// The reason why a pod has no demand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoDemand {
    /// It has none of the annotations of a request.
    NoRequest,
    /// Its annotations contain mistakes.
    Mistakes(Mistakes),
}

impl fmt::Display for NoDemand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRequest => write!(
                f,
                "the pod asks for {} but has none of the annotations that say how much of one: {}, {}",
                keys::RESOURCE,
                keys::QUOTA,
                keys::MEMORY
            ),
            Self::Mistakes(mistakes) => mistakes.fmt(f),
        }
    }
}

impl std::error::Error for NoDemand {}

/// What a pod's spec adds to the demand in its annotations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SpecDemand {
    /// The value of its PriorityClass; 0 without one.
    pub pod_priority: i32,
    /// Device slots (`sluice.dev/gpu`), on all of its GPUs, of the containers that run as long as the pod.
    pub device_slots: u64,
}

impl SpecDemand {
    fn added_to(self, demand: Demand) -> Demand {
        let slots = self.device_slots.div_ceil(u64::from(demand.gpus.max(1)));
        let slots = u32::try_from(slots).unwrap_or(u32::MAX).max(1);
        Demand { pod_priority: self.pod_priority, slots, ..demand }
    }
}

impl Demand {
    /// The demand of a pod of this namespace with these annotations.
    ///
    /// # Errors
    /// It has no request, or its request cannot be read.
    pub fn of_pod(
        namespace: &str,
        annotations: &BTreeMap<String, String>,
        spec: SpecDemand,
    ) -> Result<Self, NoDemand> {
        match GpuRequest::from_annotations(annotations) {
            Ok(Some(request)) => {
                let gang = request.gang.map(|name| format!("{namespace}/{name}").into());
                Ok(Self { gang, ..spec.added_to(request.demand) })
            }
            Ok(None) => Err(NoDemand::NoRequest),
            Err(mistakes) => Err(NoDemand::Mistakes(mistakes)),
        }
    }
}

/// What a bound pod was assigned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// UUIDs of its GPUs.
    pub gpus: Vec<String>,
    /// Its demand on each of them. If its request cannot be read, its GPUs count as completely used, so that they are not given
    /// twice.
    pub demand: Demand,
    /// Why its request cannot be read.
    pub unreadable: Option<NoDemand>,
}

impl Assignment {
    /// The assignment in these annotations of a pod of this namespace; `None` without one.
    ///
    /// # Errors
    /// The annotation with the assigned GPUs is no list of different UUIDs.
    pub fn of_pod(
        namespace: &str,
        annotations: &BTreeMap<String, String>,
        spec: SpecDemand,
    ) -> Result<Option<Self>, Mistake> {
        let Some(gpus) = assigned(annotations)? else { return Ok(None) };
        let (demand, unreadable) = match Demand::of_pod(namespace, annotations, spec) {
            Ok(demand) => (demand, None),
            Err(why) => {
                let whole = Amount::Whole(u32::try_from(gpus.len()).unwrap_or(u32::MAX));
                (spec.added_to(Demand::new(whole, None)), Some(why))
            }
        };
        Ok(Some(Self { gpus, demand, unreadable }))
    }
}
