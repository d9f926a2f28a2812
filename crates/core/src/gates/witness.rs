//! Whether a process keeps its gates: it says itself when work of it has ended, and while they are closed nothing can.

/// Streams that are believed to have had a kernel running: a GPU has so many queues for one process (`CUDA_DEVICE_MAX_CONNECTIONS`).
pub const MOST_STREAMS: u32 = 32;

/// What has been seen of one process while its gates were closed. What it says is believed where it speaks against it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Witness {
    /// They are closed.
    closed: Option<Closed>,
    /// GPU time of all work that has ended, as last told.
    told_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Closed {
    /// Since when.
    at: u64,
    /// How often work may still end after the drain time: what was running when they were closed may take long, and was one kernel on
    /// each stream.
    excused: u32,
}

impl Witness {
    /// The gates are or are not closed at `now`, and the process tells so much GPU time of work that has ended. `true` once it has
    /// gone on: more work has ended later than `drain_ns` after they were closed than can have been running then.
    ///
    /// It says that it has so many `streams`; at least one is believed, at most [`MOST_STREAMS`], and only when they are closed.
    pub fn look(&mut self, closed: bool, busy_ns: u64, streams: u64, now: u64, drain_ns: u64) -> bool {
        let told = std::mem::replace(&mut self.told_ns, busy_ns);
        if !closed {
            self.closed = None;
            return false;
        }
        let excused = u32::try_from(streams).unwrap_or(MOST_STREAMS).clamp(1, MOST_STREAMS);
        let Some(state) = &mut self.closed else {
            // What has ended up to here it was free to do.
            self.closed = Some(Closed { at: now, excused });
            return false;
        };
        if busy_ns <= told || now <= state.at.saturating_add(drain_ns) {
            return false;
        }
        let went_on = state.excused == 0;
        state.excused = state.excused.saturating_sub(1);
        went_on
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DRAIN: u64 = 25;

    /// Looks at these times and readings, with closed gates of so many streams from 0 on.
    fn seen(streams: u64, looks: &[(u64, u64)]) -> bool {
        let mut witness = Witness::default();
        witness.look(true, 0, streams, 0, DRAIN);
        looks.iter().any(|(now, busy)| witness.look(true, *busy, streams, *now, DRAIN))
    }

    #[test]
    fn who_goes_on_is_seen_and_who_ends_what_it_had_begun_is_not() {
        assert!(!seen(1, &[(10, 10), (20, 20), (100, 20)]), "it drains");
        assert!(!seen(1, &[(10, 0), (300, 300), (900, 300)]), "a long kernel ends");
        assert!(seen(1, &[(30, 30), (40, 40)]));
        assert!(!seen(2, &[(30, 30), (40, 40)]), "two long kernels end");
        assert!(seen(2, &[(30, 30), (40, 40), (50, 50)]));
        assert!(seen(0, &[(30, 30), (40, 40)]), "who does not say has one");
    }

    #[test]
    fn what_it_does_while_they_are_open_is_its_right() {
        let mut witness = Witness::default();
        for period in 0..10 {
            let at = period * 100;
            assert!(!witness.look(true, at, 1, at, DRAIN));
            assert!(!witness.look(true, at + 30, 1, at + 30, DRAIN), "once each time");
            assert!(!witness.look(false, at + 60, 1, at + 60, DRAIN));
        }
    }

    proptest! {
        /// Each stream of a process that keeps its gates has a kernel running when they are closed. Whenever those end and however
        /// often it is looked: nobody says that it went on.
        #[test]
        fn who_keeps_its_gates_is_believed_whatever_was_running(
            ends in proptest::collection::vec(1..2000u64, 1..=MOST_STREAMS as usize),
            mut looks in proptest::collection::vec(1..2500u64, 1..80),
        ) {
            looks.sort_unstable();
            let streams = ends.len() as u64;
            let mut witness = Witness::default();
            witness.look(true, 7, streams, 0, DRAIN);
            for now in looks {
                let told = 7 + ends.iter().filter(|end| **end <= now).sum::<u64>();
                prop_assert!(!witness.look(true, told, streams, now, DRAIN));
            }
        }

        /// Whoever goes on and tells of it is found out at the latest with the 33rd that ends after the drain time, whatever it says of
        /// its streams meanwhile, and stays so while it goes on.
        #[test]
        fn no_number_of_streams_hides_who_goes_on(
            said in proptest::collection::vec(prop_oneof![0..200u64, any::<u64>()], MOST_STREAMS as usize + 20),
        ) {
            let mut witness = Witness::default();
            witness.look(true, 0, said[0], 0, DRAIN);
            let found: Vec<bool> = (1..)
                .zip(&said)
                .map(|(nth, streams)| witness.look(true, nth, *streams, DRAIN + nth, DRAIN))
                .collect();
            let at = found.iter().position(|found| *found).unwrap_or(found.len());
            prop_assert!(at <= MOST_STREAMS as usize);
            prop_assert!(found[at..].iter().all(|found| *found));
            // What it said when they were closed is what counts.
            prop_assert_eq!(at as u64, said[0].clamp(1, u64::from(MOST_STREAMS)));
        }
    }
}
