//! A pod as the client of a GPU's manager.

use sluice_placement::annotations::{self, GpuRequest};
use sluice_proto::control::{Class, Client};

/// The client that a request makes of a pod, with this memory. `overcommit`: the memory may leave the GPU.
pub(super) fn client(
    pod_uid: &str,
    namespace: &str,
    pod: &str,
    request: &GpuRequest,
    memory_bytes: u64,
    overcommit: bool,
) -> Client {
    Client {
        pod_uid: pod_uid.to_owned(),
        namespace: namespace.to_owned(),
        pod: pod.to_owned(),
        class: class_of(request.class).into(),
        quota_ppm: request.demand.share.ppm(),
        limit_ppm: request.limit.ppm(),
        memory_bytes,
        slo_ns: request.slo_ns.unwrap_or(0),
        gang: request.gang.clone().unwrap_or_default(),
        overcommit,
        suspended: request.suspended,
    }
}

fn class_of(class: annotations::Class) -> Class {
    match class {
        annotations::Class::LatencyCritical => Class::LatencyCritical,
        annotations::Class::High => Class::High,
        annotations::Class::Normal => Class::Normal,
        annotations::Class::BestEffort => Class::BestEffort,
    }
}
