//! How much the driver may be asked on behalf of each pod.
//!
//! What it costs to look into a process is up to the process. So every pod has its part of what may be asked per look; who has spent
//! more waits for the next ones, and the others do not.

use std::collections::{HashMap, HashSet};

/// Questions per look, of all pods together: a quarter of a second of a real driver's time.
const QUESTIONS: i64 = 1 << 18;
/// What a pod has at least: a few processes of one context each.
const LEAST: i64 = 1 << 14;

/// What each pod may ask yet in this look.
#[derive(Debug, Default)]
pub(super) struct Purse(HashMap<String, i64>);

impl Purse {
    /// A new look, in which these pods have processes. What was not spent is not saved; what was spent too much is paid back.
    pub(super) fn fill(&mut self, pods: &HashSet<&str>) {
        self.0.retain(|pod, _| pods.contains(pod.as_str()));
        let many = i64::try_from(pods.len()).unwrap_or(i64::MAX).max(1);
        let part = (QUESTIONS / many).max(LEAST);
        for pod in pods {
            let left = self.0.entry((*pod).to_owned()).or_default();
            *left = left.saturating_add(part).min(part);
        }
    }

    /// Whether a pod's processes may be looked into still.
    pub(super) fn has_any(&self, pod: &str) -> bool {
        self.0.get(pod).is_some_and(|left| *left > 0)
    }

    /// So many questions were asked.
    pub(super) fn pay(&mut self, pod: &str, questions: u32) {
        if let Some(left) = self.0.get_mut(pod) {
            *left -= i64::from(questions);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_that_asks_too_much_waits_and_the_others_do_not() {
        let pods = HashSet::from(["greedy", "modest"]);
        let mut purse = Purse::default();
        let mut looked_into = [0, 0];
        for _ in 0..100 {
            purse.fill(&pods);
            for (pod, (count, cost)) in
                ["greedy", "modest"].into_iter().zip(looked_into.iter_mut().zip([1 << 18, 100]))
            {
                // Each has ten processes that are due.
                for _ in 0..10 {
                    if purse.has_any(pod) {
                        purse.pay(pod, cost);
                        *count += 1;
                    }
                }
            }
        }
        assert_eq!(looked_into, [50, 1000]);
    }

    #[test]
    fn nothing_is_saved_and_who_comes_anew_has_his_part() {
        let mut purse = Purse::default();
        (0..9).for_each(|_| purse.fill(&HashSet::from(["one"])));
        purse.pay("one", 1 << 18);
        assert!(!purse.has_any("one") && !purse.has_any("another"));
        purse.fill(&HashSet::from(["another"]));
        assert!(purse.has_any("another"));
    }
}
