//! Settings of groups that stay under control although the connection of their process has closed or was made anew.
//!
//! The hook of such a process sets its groups to the driver's defaults, as it does for every lost connection: at once, or when it next
//! checks its connection. The manager does not learn of that, so the settings of these groups count as unknown several times.
//!
//! A process may connect anew without end. So the marks of a client's processes are limited, as its announcements are.

use super::admission::MAX_OF_CLIENT;
use sluice_rate_limiter::Rate;

/// Groups of one client whose settings may be marked: ten a second in the long run, as for announcements. A connection that is made anew
/// causes five marks. The limit delays none of them if it happens once, however many groups the client has.
pub(super) const MARKS: Rate = Rate::one_per(5 * MAX_OF_CLIENT as u64, 100_000_000);

/// Time from the first mark to the second one: a hook that reads the end of its connection acts within this time.
const FIRST_INTERVAL_NS: u64 = 10_000_000;
/// Time between later marks. Each costs two controls for each group of the process.
const INTERVAL_NS: u64 = 500_000_000;
/// How long settings are marked, and how long the findings of a process are no violations: twice the time after which a hook checks its
/// connection.
const UNCERTAIN_NS: u64 = 2_000_000_000;
/// The least time between two such excuses of one process. It could otherwise enable its groups itself and connect anew again and again.
const BETWEEN_EXCUSES_NS: u64 = 10_000_000_000;

/// What the hook of one process may do to its groups.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Uncertainty {
    next_mark: u64,
    /// The time from the next mark to the one after it.
    interval: u64,
    /// No mark is made at this time or later.
    until: u64,
    /// Findings before this time are no violations.
    excused_until: u64,
}

impl Uncertainty {
    /// A connection has closed, or was made anew, and the groups are kept.
    pub(super) fn connection_changed(known: &mut Option<Self>, now: u64) {
        let end = now.saturating_add(UNCERTAIN_NS);
        let new = Self { next_mark: now, interval: FIRST_INTERVAL_NS, until: end, excused_until: end };
        let known = known.get_or_insert(new);
        if known.until <= now {
            (known.next_mark, known.interval) = (now, FIRST_INTERVAL_NS);
        }
        // A mark that waits for the limit may come later than this.
        known.until = known.until.max(end);
        if now >= known.excused_until.saturating_add(BETWEEN_EXCUSES_NS) {
            known.excused_until = end;
        }
    }

    /// When the settings are next to be marked as unknown.
    pub(super) fn next_mark(&self) -> Option<u64> {
        (self.next_mark < self.until).then_some(self.next_mark)
    }

    /// Whether the settings are to be marked as unknown now. Forgets what is over.
    pub(super) fn take_due(known: &mut Option<Self>, now: u64) -> bool {
        known.take_if(|known| now >= known.until.max(known.excused_until.saturating_add(BETWEEN_EXCUSES_NS)));
        let Some(known) = known else { return false };
        let is_due = known.next_mark().is_some_and(|next| next <= now);
        if is_due {
            known.next_mark = now.saturating_add(std::mem::replace(&mut known.interval, INTERVAL_NS));
        }
        is_due
    }

    /// The mark that is due now is made at this time, because the client has caused too many.
    pub(super) fn postpone(&mut self, at: u64) {
        self.next_mark = at;
        self.until = self.until.max(at.saturating_add(1));
    }

    /// Whether a finding at the process may be what its hook has done.
    pub(super) fn is_excused(&self, now: u64) -> bool {
        now < self.excused_until
    }
}
