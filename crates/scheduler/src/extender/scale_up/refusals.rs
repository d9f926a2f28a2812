//! Which pods filter refuses again and again.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// How long a refusal counts. kube-scheduler asks about a waiting pod again within 40 s, unless the nodes' sums lack room: then
/// the autoscaler sees that itself.
const VALID: Duration = Duration::from_secs(60);

/// Pods that filter has refused since it last had room for them, by UID.
#[derive(Debug, Default)]
pub(crate) struct Refusals(HashMap<String, Refused>);

#[derive(Debug)]
struct Refused {
    namespace: String,
    name: String,
    first_ns: u64,
    last_ns: u64,
}

impl Refusals {
    /// Filter has refused the pod.
    pub(crate) fn record(&mut self, uid: &str, (namespace, name): (&str, &str), now_ns: u64) {
        let new = || Refused {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            first_ns: now_ns,
            last_ns: now_ns,
        };
        self.0.entry(uid.to_owned()).or_insert_with(new).last_ns = now_ns;
    }

    /// The pod has room, or has ended.
    pub(crate) fn remove(&mut self, uid: &str) {
        self.0.remove(uid);
    }

    /// Forgets the pods that were not refused again.
    pub(crate) fn expire(&mut self, now_ns: u64) {
        self.0.retain(|_, refused| since(refused.last_ns, now_ns) < VALID);
    }

    /// Namespace and name by UID of the pods that have been refused for this time.
    pub(crate) fn lasting(&self, now_ns: u64, after: Duration) -> BTreeMap<String, (String, String)> {
        let lasting = self.0.iter().filter(|(_, refused)| since(refused.first_ns, now_ns) >= after);
        lasting
            .map(|(uid, refused)| (uid.clone(), (refused.namespace.clone(), refused.name.clone())))
            .collect()
    }
}

fn since(then_ns: u64, now_ns: u64) -> Duration {
    Duration::from_nanos(now_ns.saturating_sub(then_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn pod_counts_after_the_delay_and_until_its_last_refusal_is_old() {
        let mut refusals = Refusals::default();
        let lasting = |refusals: &mut Refusals, second: u64| {
            refusals.expire(second * SECOND);
            let found = refusals.lasting(second * SECOND, Duration::from_secs(10));
            found.into_keys().collect::<Vec<_>>()
        };
        refusals.record("uid", ("team", "pod"), 0);
        assert!(lasting(&mut refusals, 9).is_empty());
        assert_eq!(lasting(&mut refusals, 10), ["uid"]);
        refusals.record("uid", ("team", "pod"), 40 * SECOND);
        assert_eq!(lasting(&mut refusals, 99), ["uid"]);
        assert!(lasting(&mut refusals, 100).is_empty());
        // A later refusal begins a new row.
        refusals.record("uid", ("team", "pod"), 101 * SECOND);
        assert!(lasting(&mut refusals, 105).is_empty());
        refusals.remove("uid");
        assert!(lasting(&mut refusals, 111).is_empty());
    }
}
