//! Stalls in a GPU's timeline: pure functions over the simulator's intervals, which come in order of time.

use sluice_sim::ledger::Interval;

/// The longest time within `from..to` in which none of these processes had the GPU, nanoseconds.
pub fn longest_gap(timeline: &[Interval], pids: &[i32], from: u64, to: u64) -> u64 {
    let (mut idle_since, mut longest) = (from, 0);
    for interval in timeline.iter().filter(|interval| pids.contains(&interval.pid)) {
        longest = longest.max(interval.start_ns.min(to).saturating_sub(idle_since));
        idle_since = idle_since.max(interval.end_ns.min(to));
    }
    longest.max(to.saturating_sub(idle_since))
}

/// When this process first had the GPU after `time`; `None` if it never did, or had it at `time` already.
pub fn next_start(timeline: &[Interval], pid: i32, time: u64) -> Option<u64> {
    let next = timeline.iter().find(|interval| interval.pid == pid && interval.end_ns > time)?;
    (next.start_ns >= time).then_some(next.start_ns)
}

/// For each time that the GPU passed from one process to another: how long no process had it, nanoseconds.
pub fn handoffs(timeline: &[Interval]) -> impl Iterator<Item = u64> + '_ {
    let pairs = timeline.iter().zip(timeline.iter().skip(1));
    pairs.filter(|(a, b)| a.pid != b.pid).map(|(a, b)| b.start_ns.saturating_sub(a.end_ns))
}

#[cfg(test)]
mod tests;
