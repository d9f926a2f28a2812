//! Who leads: the kube-scheduler whose identity begins with our pod's name, by its leader election lease.

use std::pin::pin;

use futures::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::Api;
use kube::runtime::{WatchStreamExt, watcher};

use super::extender::Extender;

/// Follows the lease for ever.
///
/// While the API cannot be reached, the last word counts: whoever leads then cannot bind anything either, and a
/// kube-scheduler that cannot renew its lease ends itself before another can take it.
pub(crate) async fn follow(extender: &Extender, namespace: &str, name: &str, pod_name: &str) {
    let api: Api<Lease> = Api::namespaced(extender.client.clone(), namespace);
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut stream = pin!(watcher(api, config).default_backoff());
    let mut was_listed = false;
    while let Some(event) = stream.next().await {
        match event {
            Ok(watcher::Event::Init) => was_listed = false,
            Ok(watcher::Event::InitApply(lease) | watcher::Event::Apply(lease)) => {
                was_listed = true;
                let holder = lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
                let leads = is_ours(&holder, pod_name);
                tracing::debug!(holder, leads, "lease");
                extender.role.set_leader(leads, &holder);
            }
            Ok(watcher::Event::Delete(_)) => extender.role.set_leading(false),
            Ok(watcher::Event::InitDone) if !was_listed => extender.role.set_leading(false),
            Ok(watcher::Event::InitDone) => {}
            Err(error) => {
                extender.metrics.watch_errors.inc();
                tracing::warn!(%error, lease = name, "watch interrupted");
            }
        }
    }
}

/// A kube-scheduler's identity is its host name, `_` and a random UUID.
fn is_ours(holder: &str, pod_name: &str) -> bool {
    holder.strip_prefix(host_name(pod_name)).is_some_and(|rest| rest.starts_with('_'))
}

/// The host name that kubelet gives a pod of this name: at most 63 bytes, which end in a letter or digit
/// (`truncatePodHostnameIfNeeded`, pkg/kubelet/kubelet_pods.go). Names of pods are ASCII.
fn host_name(pod_name: &str) -> &str {
    pod_name.get(..63).map_or(pod_name, |cut| cut.trim_end_matches(['-', '.']))
}

#[cfg(test)]
mod tests {
    use super::{host_name, is_ours};

    #[test]
    fn a_long_name_is_cut_as_kubelet_cuts_it() {
        let long = format!("{}-12345678-abcde", "x".repeat(54));
        assert_eq!(host_name(&long), format!("{}-12345678", "x".repeat(54)));
        assert!(is_ours(&format!("{}-12345678_5d0e", "x".repeat(54)), &long));
        assert_eq!(host_name("short-1"), "short-1");
    }

    #[test]
    fn a_holder_is_ours_by_our_whole_name() {
        assert!(is_ours("sluice-scheduler-abc-1_5d0e", "sluice-scheduler-abc-1"));
        for other in
            ["", "sluice-scheduler-abc-1", "sluice-scheduler-abc-10_5d0e", "x_sluice-scheduler-abc-1_"]
        {
            assert!(!is_ours(other, "sluice-scheduler-abc-1"), "{other}");
        }
    }
}
