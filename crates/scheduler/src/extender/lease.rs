//! Watches the leader election lease: the kube-scheduler of this pod leads if the holder's identity begins with this
//! pod's name.

use std::pin::pin;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::api::Api;
use kube::runtime::{WatchStreamExt, watcher};

use super::extender::Extender;

/// Duration of a lease that does not state one.
const LEASE_SECONDS: i32 = 15;
/// Length of one watch. A connection that died silently must not cost the leadership for long.
const WATCH_SECONDS: u32 = 10;

/// Follows the lease for ever.
///
/// A lease without a renewal within its duration is over: its kube-scheduler has exited before that, and another may
/// hold it.
pub(crate) async fn follow(extender: &Extender, namespace: &str, name: &str, pod_name: &str) {
    let api: Api<Lease> = Api::namespaced(extender.client.clone(), namespace);
    let config = watcher::Config::default().fields(&format!("metadata.name={name}")).timeout(WATCH_SECONDS);
    let mut stream = pin!(watcher(api, config).default_backoff());
    let mut was_listed = false;
    let mut last_renewal = None;
    while let Some(event) = stream.next().await {
        match event {
            Ok(watcher::Event::Init) => was_listed = false,
            Ok(watcher::Event::InitApply(lease) | watcher::Event::Apply(lease)) => {
                was_listed = true;
                let spec = lease.spec.unwrap_or_default();
                // A new list repeats the last renewal, which does not extend the lease.
                let renewal = Some((spec.holder_identity.clone(), spec.renew_time.clone()));
                if last_renewal != renewal {
                    last_renewal = renewal;
                    apply_pod(extender, &spec, pod_name);
                }
            }
            Ok(watcher::Event::Delete(_)) => extender.leadership.set_leading(false),
            Ok(watcher::Event::InitDone) if !was_listed => extender.leadership.set_leading(false),
            Ok(watcher::Event::InitDone) => {}
            Err(error) => {
                extender.metrics.watch_errors.inc();
                tracing::warn!(%error, lease = name, "watch interrupted");
            }
        }
    }
}

/// Applies a renewal or a change of the holder.
fn apply_pod(extender: &Extender, spec: &LeaseSpec, pod_name: &str) {
    let holder = spec.holder_identity.as_deref().unwrap_or_default();
    let leads = is_ours(holder, pod_name);
    tracing::debug!(holder, leads, "lease");
    let seconds = spec.lease_duration_seconds.unwrap_or(LEASE_SECONDS);
    let lasting = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
    extender.leadership.set_leader(leads, holder, Some(lasting));
}

/// A kube-scheduler's identity is its host name, `_` and a random UUID.
fn is_ours(holder: &str, pod_name: &str) -> bool {
    holder.strip_prefix(host_name(pod_name)).is_some_and(|rest| rest.starts_with('_'))
}

/// The host name that kubelet gives a pod of this name: at most 63 bytes, ending in a letter or digit
/// (`truncatePodHostnameIfNeeded`, pkg/kubelet/kubelet_pods.go). Names of pods are ASCII.
fn host_name(pod_name: &str) -> &str {
    pod_name.get(..63).map_or(pod_name, |cut| cut.trim_end_matches(['-', '.']))
}

#[cfg(test)]
mod tests;
