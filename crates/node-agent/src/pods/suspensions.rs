//! Which pods the annotation `sluice.dev/suspend` has suspended or resumed. Pure.

use std::collections::BTreeMap;

use sluice_proto::control::Client;

/// The clients of each GPU by its UUID.
type Sets = BTreeMap<String, Vec<Client>>;

/// By the pod's uid, whether it is suspended now: those for which that was different before, and those that are new and suspended. Pods that
/// are clients no longer are left out.
pub(super) fn changes<'a>(before: &Sets, now: &'a Sets) -> Vec<(&'a str, bool)> {
    let (was, is) = (by_pod(before), by_pod(now));
    let is_new = |(uid, suspended): &(&str, bool)| was.get(uid).copied().unwrap_or(false) != *suspended;
    is.into_iter().filter(is_new).collect()
}

fn by_pod(sets: &Sets) -> BTreeMap<&str, bool> {
    sets.values().flatten().map(|client| (client.pod_uid.as_str(), client.suspended)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pods, and whether each is suspended.
    fn sets(pods: &[(&str, bool)]) -> Sets {
        let client = |(uid, suspended): &(&str, bool)| Client {
            pod_uid: (*uid).to_owned(),
            suspended: *suspended,
            ..Client::default()
        };
        [("GPU-a".to_owned(), pods.iter().map(client).collect())].into()
    }

    #[test]
    fn each_change_is_found_once_and_an_ended_pod_has_none() {
        let before = sets(&[("a", false), ("b", true), ("c", true), ("d", true)]);
        let now = sets(&[("a", true), ("b", false), ("c", true), ("e", true), ("f", false)]);
        assert_eq!(changes(&before, &now), [("a", true), ("b", false), ("e", true)]);
        assert_eq!(changes(&now, &now), []);
    }
}
