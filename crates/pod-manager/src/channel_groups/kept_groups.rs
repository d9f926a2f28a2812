//! Processes whose connection has closed, or was made anew, while their groups stayed under control. The hook of such a process sets its
//! groups to the driver's defaults, as it does for every lost connection: at once, or when it next checks its connection. The manager does
//! not learn of that, so the settings of these groups count as unknown several times.

use sluice_core::ProcessId;
use std::collections::HashMap;

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
#[derive(Debug)]
struct Uncertainty {
    next_mark: u64,
    /// The time from the next mark to the one after it.
    interval: u64,
    /// No mark is made at this time or later.
    until: u64,
    /// Findings before this time are no violations.
    excused_until: u64,
}

impl Uncertainty {
    fn next_mark(&self) -> Option<u64> {
        (self.next_mark < self.until).then_some(self.next_mark)
    }
}

/// The processes whose groups are marked as unknown from time to time.
#[derive(Debug, Default)]
pub(super) struct KeptGroups(HashMap<ProcessId, Uncertainty>);

impl KeptGroups {
    /// A connection of a process has closed, or was made anew, and its groups are kept.
    pub(super) fn connection_changed(&mut self, id: ProcessId, now: u64) {
        let end = now.saturating_add(UNCERTAIN_NS);
        let new = Uncertainty { next_mark: now, interval: FIRST_INTERVAL_NS, until: end, excused_until: end };
        let known = self.0.entry(id).or_insert(new);
        if known.until <= now {
            (known.next_mark, known.interval) = (now, FIRST_INTERVAL_NS);
        }
        known.until = end;
        if now >= known.excused_until.saturating_add(BETWEEN_EXCUSES_NS) {
            known.excused_until = end;
        }
    }

    /// When the next settings are to be marked as unknown.
    pub(super) fn next_deadline(&self) -> Option<u64> {
        self.0.values().filter_map(Uncertainty::next_mark).min()
    }

    /// The processes whose settings are to be marked as unknown now.
    pub(super) fn take_due(&mut self, now: u64) -> Vec<ProcessId> {
        let end =
            |known: &Uncertainty| known.until.max(known.excused_until.saturating_add(BETWEEN_EXCUSES_NS));
        self.0.retain(|_, known| now < end(known));
        let mut due = Vec::new();
        for (id, known) in &mut self.0 {
            if known.next_mark().is_some_and(|next| next <= now) {
                known.next_mark = now.saturating_add(std::mem::replace(&mut known.interval, INTERVAL_NS));
                due.push(*id);
            }
        }
        due
    }

    /// Whether a finding at a process may be what its hook has done.
    pub(super) fn is_excused(&self, id: ProcessId, now: u64) -> bool {
        self.0.get(&id).is_some_and(|known| now < known.excused_until)
    }

    /// The groups of a process are not kept any longer.
    pub(super) fn forget(&mut self, id: ProcessId) {
        self.0.remove(&id);
    }
}
