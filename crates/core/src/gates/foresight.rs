//! Work that is announced: a latency-critical process says that a request of its own comes soon, so that the gates are closed when it does.

use crate::steering::Activity;

/// What a process has announced. It is believed for a moment, and for ever less often if nothing follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Foresight {
    /// When it last said so, and until when it is believed.
    awaited: Option<(u64, u64)>,
    /// Time, nanoseconds, for which nothing followed; it is forgotten at [`FORGOTTEN`] of the time that goes by.
    in_vain_ns: u64,
    /// Up to when it has been forgotten.
    seen: u64,
}

/// The longest that an announcement is believed: the longest that a hold lasts. Nanoseconds.
const LONGEST_NS: u64 = 2_000_000;
/// How much later than announced work may come: what a host takes to prepare it differs. Nanoseconds.
pub const LATE_NS: u64 = 500_000;
/// Announcements in vain that are believed at once, nanoseconds.
const MOST_IN_VAIN_NS: u64 = 5 * LONGEST_NS;
/// One nanosecond in so many may be announced in vain for ever.
const FORGOTTEN: u64 = 100;

impl Foresight {
    /// The process says at `now` that work of its own comes in `lead_ns`; whether it is believed, which further ahead than 2 ms nobody is.
    /// What it does is looked at first ([`Self::look`]).
    pub fn announce(&mut self, now: u64, lead_ns: u64) -> bool {
        let elapsed = now.saturating_sub(self.seen);
        self.seen = self.seen.max(now);
        self.in_vain_ns = self.in_vain_ns.saturating_sub(elapsed / FORGOTTEN);
        let believed_ns = lead_ns.saturating_add(LATE_NS).min(LONGEST_NS);
        if lead_ns > LONGEST_NS
            || self.awaited.is_some()
            || self.in_vain_ns.saturating_add(believed_ns) > MOST_IN_VAIN_NS
        {
            return false;
        }
        self.awaited = Some((now, now.saturating_add(believed_ns)));
        true
    }

    /// The process does this at `now`; until when more of it is awaited, if it is.
    pub fn look(&mut self, now: u64, activity: Activity) -> Option<u64> {
        let (since, until) = self.awaited?;
        if activity.busy || activity.since_ns >= since {
            self.awaited = None;
        } else if now >= until {
            self.awaited = None;
            self.in_vain_ns = self.in_vain_ns.saturating_add(until - since);
        }
        self.awaited.map(|(_, until)| until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const US: u64 = 1_000;
    const S: u64 = 1_000_000_000;
    const IDLE: Activity = Activity { busy: false, since_ns: 0 };

    #[test]
    fn it_is_believed_until_the_work_comes_or_is_late() {
        let mut foresight = Foresight::default();
        assert!(foresight.announce(S, 200 * US));
        assert_eq!(foresight.look(S + 600 * US, IDLE), Some(S + 700 * US));
        assert_eq!(foresight.look(S + 700 * US, IDLE), None);
        assert!(foresight.announce(2 * S, 200 * US));
        assert_eq!(foresight.look(2 * S + 1, Activity { busy: true, since_ns: 2 * S }), None);
        // A whole request may have gone by between two looks.
        assert!(foresight.announce(3 * S, 200 * US));
        assert_eq!(foresight.look(3 * S + 1, Activity { busy: false, since_ns: 3 * S }), None);
    }

    #[test]
    fn it_is_believed_for_two_milliseconds_at_most_and_not_at_all_further_ahead() {
        let mut foresight = Foresight::default();
        assert!(!foresight.announce(S, LONGEST_NS + 1));
        assert!(foresight.announce(S, LONGEST_NS));
        assert_eq!(foresight.look(S, IDLE), Some(S + LONGEST_NS));
        assert!(!foresight.announce(S + US, LONGEST_NS), "to say it again makes it no longer");
        assert_eq!(foresight.look(S + LONGEST_NS, IDLE), None);
    }

    #[test]
    fn what_is_followed_by_work_costs_nothing() {
        let mut foresight = Foresight::default();
        for nth in 1..1000 {
            let now = S + nth * LONGEST_NS;
            assert!(foresight.announce(now, LONGEST_NS));
            foresight.look(now + LONGEST_NS - 1, Activity { busy: true, since_ns: now + LONGEST_NS - 1 });
        }
    }

    proptest! {
        /// Who announces whenever it likes, and never does anything, is believed for a hundredth of the time and 10 ms.
        #[test]
        fn who_does_nothing_is_hardly_ever_believed(
            calls in proptest::collection::vec((1..20_000_000u64, 0..4_000_000u64), 1..400),
        ) {
            let mut foresight = Foresight::default();
            let (mut now, mut believed) = (S, 0);
            for (pause, lead) in calls {
                let next = now + pause;
                if let Some(until) = foresight.look(now, IDLE) {
                    believed += until.min(next) - now;
                } else if foresight.announce(now, lead) {
                    believed += foresight.look(now, IDLE).unwrap().min(next) - now;
                }
                now = next;
                // Time begins with what nobody has announced in vain yet.
                prop_assert!(believed <= (now - S) / FORGOTTEN + MOST_IN_VAIN_NS + LONGEST_NS);
            }
        }
    }
}
