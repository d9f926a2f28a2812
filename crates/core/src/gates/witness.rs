//! Whether a process keeps its gates: it says itself when work of it has ended, and while they are closed nothing can.

/// Work may end so often after the drain time: what was running when the gates were closed, which may take long.
const EXCUSED: u32 = 1;

/// What has been seen of one process while its gates were closed. What it says is believed where it speaks against it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Witness {
    /// Since when they are closed.
    closed_at: Option<u64>,
    /// GPU time of all work that has ended, as last told.
    told_ns: u64,
    /// How often more was told after the drain time.
    went_on: u32,
}

impl Witness {
    /// The gates are or are not closed at `now`, and the process tells so much GPU time of work that has ended. `true` once it has
    /// gone on, `drain_ns` after they were closed and again after that.
    pub fn look(&mut self, closed: bool, busy_ns: u64, now: u64, drain_ns: u64) -> bool {
        if !closed {
            *self = Self { told_ns: busy_ns, ..Self::default() };
            return false;
        }
        let closed_at = *self.closed_at.get_or_insert(now);
        let told = std::mem::replace(&mut self.told_ns, busy_ns);
        self.went_on += u32::from(busy_ns > told && now > closed_at.saturating_add(drain_ns));
        self.went_on > EXCUSED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks at these times and readings, with closed gates from 0 on and a drain time of 25.
    fn seen(looks: &[(u64, u64)]) -> bool {
        let mut witness = Witness::default();
        witness.look(true, 0, 0, 25);
        looks.iter().any(|(now, busy)| witness.look(true, *busy, *now, 25))
    }

    #[test]
    fn who_goes_on_is_seen_and_who_ends_what_it_had_begun_is_not() {
        assert!(!seen(&[(10, 10), (20, 20), (100, 20)]), "it drains");
        assert!(!seen(&[(10, 0), (300, 300), (900, 300)]), "a long kernel ends");
        assert!(seen(&[(30, 30), (40, 40)]));
    }

    #[test]
    fn what_it_does_while_they_are_open_is_its_right() {
        let mut witness = Witness::default();
        for period in 0..10 {
            let at = period * 100;
            assert!(!witness.look(true, at, at, 25));
            assert!(!witness.look(true, at + 30, at + 30, 25), "once each time");
            assert!(!witness.look(false, at + 60, at + 60, 25));
        }
    }
}
