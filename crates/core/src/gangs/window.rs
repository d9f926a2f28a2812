//! The part of each cycle in which a latency-critical gang is never delayed.
//!
//! A manager that delays a rank leaves its peers spinning in a collective, and their managers charge and delay them for it, later. Two
//! managers that each delayed a rank of a tensor-parallel service did so in turns: service and training made less than 0.02 of what each
//! makes alone (two H200; the service needed 0.5 and had requested 0.45).

use super::slots::{CYCLE_NS, SHORTEST_NS};

/// How far the windows move from one cycle to the next, so that they fall on the slots of all other gangs alike.
const STEP_NS: u64 = 124_000_000;

/// The window of a latency-critical gang at one time. It is the same on all of its GPUs, and as long as its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The gang is not delayed now.
    pub is_open: bool,
    /// When that may be different.
    pub until: u64,
}

impl Window {
    /// The window of a gang that is entitled to this part of a cycle; `None` if that is too short for one.
    #[must_use]
    pub fn at(now: u64, length_ns: u64) -> Option<Self> {
        if length_ns < SHORTEST_NS {
            return None;
        }
        let (cycle, phase) = (now / CYCLE_NS, now % CYCLE_NS);
        let start = cycle.wrapping_mul(STEP_NS) % CYCLE_NS;
        let is_open = (phase + CYCLE_NS - start) % CYCLE_NS < length_ns;
        // One that reaches beyond the end of the cycle goes on at its beginning.
        let borders = [start, (start + length_ns) % CYCLE_NS, CYCLE_NS].into_iter();
        let next = borders.filter(|border| *border > phase).min().unwrap_or(CYCLE_NS);
        Some(Self { is_open, until: now.saturating_add(next - phase) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn windows_are_open_for_their_length_in_each_cycle_and_fall_on_every_part_of_it() {
        let mut open_in = [0_u64; 200];
        for ms in 0..10_000 {
            let window = Window::at(ms * MS, 90 * MS).unwrap();
            let next = Window::at(window.until - 1, 90 * MS).unwrap();
            assert_eq!((next.is_open, next.until), (window.is_open, window.until), "{ms}");
            open_in[usize::try_from(ms % 200).unwrap()] += u64::from(window.is_open);
        }
        assert_eq!(open_in.iter().sum::<u64>(), 50 * 90);
        assert!(open_in.iter().all(|count| (20..=25).contains(count)), "{open_in:?}");
    }

    #[test]
    fn a_gang_of_the_whole_time_is_never_delayed_and_one_of_none_has_no_window() {
        assert!((0..400).all(|ms| Window::at(ms * MS, CYCLE_NS).unwrap().is_open));
        assert_eq!(Window::at(0, 0), None);
    }
}
