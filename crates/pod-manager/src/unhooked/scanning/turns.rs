//! The order of work for the processes of several pods.

use super::ProcessKey;
use std::collections::HashMap;

/// Orders work that is due since some time: the longest waiting process of each pod, then the next one of each pod, and so on. So a pod with
/// many processes delays only itself.
pub(super) fn in_turn<T>(mut due: Vec<(u64, ProcessKey, &str, T)>) -> impl Iterator<Item = T> {
    due.sort_by_key(|(since, key, ..)| (*since, *key));
    let mut of_pods: HashMap<&str, usize> = HashMap::new();
    let mut in_turn: Vec<(usize, T)> = Vec::new();
    for (_, _, pod, work) in due {
        let of_pod = of_pods.entry(pod).or_default();
        in_turn.push((*of_pod, work));
        *of_pod += 1;
    }
    in_turn.sort_by_key(|(turn, _)| *turn);
    in_turn.into_iter().map(|(_, work)| work)
}
