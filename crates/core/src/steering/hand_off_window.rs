//! When a hand-over may disturb the latency-critical processes: a control in the middle of a request costs it 150 to 200 µs.

use super::activity::Activity;
use super::policy::SteeringPolicy;

/// Opens at a good moment, or when patience ends, and stays open for as long as one hand-over takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Gate {
    /// Since when somebody waits for it.
    asked_at: Option<u64>,
    open_until: u64,
    forced: u64,
}

impl Gate {
    /// Whether a hand-over may go on now; asks for a good moment if not.
    pub fn is_open(
        &mut self,
        policy: &SteeringPolicy,
        now: u64,
        critical: impl Iterator<Item = Activity> + Clone,
    ) -> bool {
        if now < self.open_until {
            return true;
        }
        let asked_at = *self.asked_at.get_or_insert(now);
        let good = is_good(policy, now, critical);
        if !good && now < asked_at.saturating_add(policy.gate_patience_ns) {
            return false;
        }
        self.forced += u64::from(!good);
        self.asked_at = None;
        self.open_until = now.saturating_add(policy.gate_open_ns);
        true
    }

    /// Nobody waits for it any more.
    pub fn withdraw(&mut self) {
        self.asked_at = None;
    }

    /// When to look again, if somebody waits.
    #[must_use]
    pub fn wake_at(&self, policy: &SteeringPolicy, now: u64) -> Option<u64> {
        let asked_at = self.asked_at?;
        Some(now.saturating_add(policy.gate_look_ns).min(asked_at.saturating_add(policy.gate_patience_ns)))
    }

    /// How often it opened because patience had ended.
    #[must_use]
    pub const fn forced(&self) -> u64 {
        self.forced
    }
}

/// All are idle, and the one that was last busy has just finished or has not had anything to do for long. In between the
/// next request may be about to come.
fn is_good(policy: &SteeringPolicy, now: u64, critical: impl Iterator<Item = Activity>) -> bool {
    let mut shortest = u64::MAX;
    for activity in critical {
        match activity.idle_for(now) {
            None => return false,
            Some(idle) => shortest = shortest.min(idle),
        }
    }
    shortest <= policy.gate_fresh_ns || shortest >= policy.gate_quiet_ns
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1000;
    const MS: u64 = 1_000_000;

    fn open(gate: &mut Gate, now: u64, critical: &[Activity]) -> bool {
        gate.is_open(&SteeringPolicy::default(), now, critical.iter().copied())
    }

    const BUSY: Activity = Activity { busy: true, since_ns: 0 };

    fn idle_since(since_ns: u64) -> Activity {
        Activity { busy: false, since_ns }
    }

    #[test]
    fn it_opens_when_a_request_has_just_finished_and_stays_open_for_the_rest_of_the_hand_over() {
        let mut gate = Gate::default();
        let at = 1000 * MS;
        assert!(!open(&mut gate, at, &[BUSY]));
        assert!(!open(&mut gate, at + MS, &[idle_since(at), BUSY]), "another one is busy");
        assert!(open(&mut gate, at + 2 * MS, &[idle_since(at + 2 * MS - 200 * US)]));
        assert!(open(&mut gate, at + 3 * MS, &[BUSY]));
        assert!(!open(&mut gate, at + 6 * MS, &[BUSY]));
        assert_eq!(gate.forced(), 0);
    }

    #[test]
    fn in_the_middle_of_a_pause_the_next_request_is_waited_for() {
        let mut gate = Gate::default();
        let at = 1000 * MS;
        assert!(!open(&mut gate, at, &[idle_since(at - 5 * MS)]));
        assert!(open(&mut gate, at + MS, &[idle_since(at + MS - 100 * MS)]), "it has nothing to do");
    }

    #[test]
    fn patience_ends() {
        let mut gate = Gate::default();
        let at = 1000 * MS;
        assert!(!open(&mut gate, at, &[BUSY]));
        let policy = SteeringPolicy::default();
        assert_eq!(gate.wake_at(&policy, at), Some(at + 250 * US));
        assert_eq!(gate.wake_at(&policy, at + 20 * MS - 1), Some(at + 20 * MS));
        assert!(!open(&mut gate, at + 20 * MS - 1, &[BUSY]));
        assert!(open(&mut gate, at + 20 * MS, &[BUSY]));
        assert_eq!((gate.forced(), gate.wake_at(&policy, at + 20 * MS)), (1, None));
    }
}
