//! Bound pods as possible victims of a preemption.

use std::collections::BTreeMap;

use super::objects::Pod;

/// What the choice of victims has to know of a bound pod, beside its reservation.
#[derive(Debug, Clone)]
pub(crate) struct Occupant {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    /// Seconds since 1970.
    pub(crate) started: i64,
    /// Thousandths of each resource's unit.
    pub(crate) requests: BTreeMap<String, u64>,
    /// The stock scheduler may need its end for reasons that the requests do not show.
    pub(crate) has_uncounted_needs: bool,
}

impl Occupant {
    pub(crate) fn new(pod: &Pod) -> Self {
        let (namespace, name) = pod.path();
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            labels: pod.labels().cloned().unwrap_or_default(),
            started: pod.started(),
            requests: pod.spec().requests(),
            has_uncounted_needs: pod.spec().has_uncounted_needs(),
        }
    }
}
