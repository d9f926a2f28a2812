//! Work that is announced: a latency-critical process says that a request of its own comes soon, so that the gates are closed when it does.

use crate::steering::Activity;

/// What a process has announced. It is believed for a moment, and for ever less often if nothing follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Foresight {
    awaited: Option<Awaited>,
    /// Time, nanoseconds, for which nothing followed; it is forgotten at [`FORGOTTEN`] of the time that goes by.
    in_vain_ns: u64,
    /// Up to when it has been forgotten.
    seen: u64,
}

/// What it said last, and is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Awaited {
    /// Work that ended later than this may be what it spoke of.
    said: u64,
    /// From when to when it is believed.
    since: u64,
    until: u64,
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
    /// At `now` it is heard that the process has said that work of its own comes in `lead_ns`; whether it is believed, which further
    /// ahead than 2 ms nobody is, nor who is busy. It said so at `said` at the earliest, and does this.
    ///
    /// Who has done something since `said` is not believed either: that may have been what it spoke of, all over before it was heard. It
    /// costs nobody anything, so it counts neither for the process nor against it, whatever the process makes up.
    pub fn announce(&mut self, now: u64, said: u64, lead_ns: u64, activity: Activity) -> bool {
        self.look(now, activity);
        let elapsed = now.saturating_sub(self.seen);
        self.seen = self.seen.max(now);
        self.in_vain_ns = self.in_vain_ns.saturating_sub(elapsed / FORGOTTEN);
        let believed_ns = lead_ns.saturating_add(LATE_NS).min(LONGEST_NS);
        let said = said.min(now);
        if lead_ns > LONGEST_NS
            || self.awaited.is_some()
            || has_worked(activity, said)
            || self.in_vain_ns.saturating_add(believed_ns) > MOST_IN_VAIN_NS
        {
            return false;
        }
        self.awaited = Some(Awaited { said, since: now, until: now.saturating_add(believed_ns) });
        true
    }

    /// The process does this at `now`; until when more of it is awaited, if it is.
    pub fn look(&mut self, now: u64, activity: Activity) -> Option<u64> {
        let Awaited { said, since, until } = self.awaited?;
        if has_worked(activity, said) {
            self.awaited = None;
        } else if now >= until {
            self.awaited = None;
            self.in_vain_ns = self.in_vain_ns.saturating_add(until - since);
        }
        self.awaited.map(|awaited| awaited.until)
    }
}

/// It works, or has worked and ended after `since`.
fn has_worked(activity: Activity, since: u64) -> bool {
    activity.busy || activity.since_ns > since
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const US: u64 = 1_000;
    const S: u64 = 1_000_000_000;
    const IDLE: Activity = idle_since(0);

    const fn idle_since(since_ns: u64) -> Activity {
        Activity { busy: false, since_ns }
    }

    #[test]
    fn it_is_believed_until_the_work_comes_or_is_late() {
        let mut foresight = Foresight::default();
        assert!(foresight.announce(S, S, 200 * US, IDLE));
        assert_eq!(foresight.look(S + 600 * US, IDLE), Some(S + 700 * US));
        assert_eq!(foresight.look(S + 700 * US, IDLE), None);
        assert!(foresight.announce(2 * S, 2 * S, 200 * US, IDLE));
        assert_eq!(foresight.look(2 * S + 1, Activity { busy: true, since_ns: 2 * S }), None);
        // A whole request may have gone by between two looks.
        assert!(foresight.announce(3 * S, 3 * S, 200 * US, IDLE));
        assert_eq!(foresight.look(3 * S + 2, idle_since(3 * S + 1)), None);
    }

    #[test]
    fn it_is_believed_for_two_milliseconds_at_most_and_not_at_all_further_ahead() {
        let mut foresight = Foresight::default();
        assert!(!foresight.announce(S, S, LONGEST_NS + 1, IDLE));
        assert!(foresight.announce(S, S, LONGEST_NS, IDLE));
        assert_eq!(foresight.look(S, IDLE), Some(S + LONGEST_NS));
        assert!(!foresight.announce(S + US, S + US, LONGEST_NS, IDLE), "to say it again makes it no longer");
        assert_eq!(foresight.look(S + LONGEST_NS, IDLE), None);
    }

    #[test]
    fn what_is_followed_by_work_costs_nothing() {
        let mut foresight = Foresight::default();
        for nth in 1..1000 {
            let now = S + nth * LONGEST_NS;
            assert!(foresight.announce(now, now, LONGEST_NS, IDLE));
            foresight.look(now + LONGEST_NS - 1, Activity { busy: true, since_ns: now + LONGEST_NS - 1 });
        }
    }

    #[test]
    fn what_may_be_over_before_it_is_heard_of_is_neither_awaited_nor_in_vain() {
        let mut foresight = Foresight::default();
        let mut said = S;
        for _ in 0..100 {
            let (ended, heard) = (said + 200 * US, said + 300 * US);
            assert!(!foresight.announce(heard, said, LONGEST_NS, idle_since(ended)));
            assert_eq!(foresight.look(heard, idle_since(ended)), None);
            said += 10 * LONGEST_NS;
        }
        assert!(foresight.announce(said, said, LONGEST_NS, IDLE), "it has lost nothing by it");
    }

    #[test]
    fn what_ended_before_it_was_said_is_not_what_was_announced() {
        let mut foresight = Foresight::default();
        assert!(foresight.announce(S + 300 * US, S, 200 * US, idle_since(S)));
        assert_eq!(foresight.look(S + 400 * US, idle_since(S)), Some(S + 1000 * US));
        // Its end may be told of later than it was.
        assert_eq!(foresight.look(S + 400 * US, idle_since(S + 200 * US)), None);
    }

    proptest! {
        /// Who announces whenever it likes, and never does anything that it could have meant, is believed for a hundredth of the time and
        /// 10 ms, whatever it makes up of what it did before and of when it spoke.
        #[test]
        fn who_does_nothing_is_hardly_ever_believed(
            calls in proptest::collection::vec(
                (1..20_000_000u64, 0..4_000_000u64, 0..4_000_000u64, prop_oneof![Just(0), 0..4_000_000u64, any::<u64>()]),
                1..400,
            ),
        ) {
            let mut foresight = Foresight::default();
            let (mut now, mut believed, mut says) = (S, 0, IDLE);
            for (pause, lead, ended_ago, said_ago) in calls {
                let next = now + pause;
                if let Some(until) = foresight.look(now, says) {
                    believed += until.min(next) - now;
                } else {
                    says = idle_since(now - ended_ago);
                    if foresight.announce(now, now.wrapping_sub(said_ago), lead, says) {
                        believed += foresight.look(now, says).unwrap().min(next) - now;
                    }
                }
                now = next;
                // Time begins with what nobody has announced in vain yet.
                prop_assert!(believed <= (now - S) / FORGOTTEN + MOST_IN_VAIN_NS + LONGEST_NS);
            }
        }
    }
}
