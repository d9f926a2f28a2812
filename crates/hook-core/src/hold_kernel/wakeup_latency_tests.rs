use super::*;

const MS: u64 = 1_000_000;
const DUE: u64 = 1_000 * MS;

/// Wakes so much late each time, so often.
fn after(period_ns: u64, late_ns: impl IntoIterator<Item = u64>) -> WakeupLatency {
    let mut latency = WakeupLatency::new();
    for (at, late) in late_ns.into_iter().enumerate() {
        let asked = DUE + at as u64 * period_ns;
        latency.learn(asked, asked + late);
    }
    latency
}

fn ahead(latency: &WakeupLatency) -> u64 {
    DUE - latency.wake_at(DUE)
}

#[test]
fn who_wakes_late_asks_to_be_woken_that_much_earlier() {
    let ahead = ahead(&after(10 * MS, [170_000; 20]));
    assert!((170_000..=185_000).contains(&ahead), "{ahead}");
}

#[test]
fn one_that_wakes_in_time_does_not_look_at_the_clock_for_long() {
    assert!(ahead(&after(10 * MS, [2_000; 600])) < 15_000);
}

#[test]
fn one_late_waking_is_remembered_for_a_while() {
    let late = [2_000; 400].into_iter().chain([200_000]).chain([2_000; 40]);
    assert!(ahead(&after(10 * MS, late)) > 100_000);
}

#[test]
fn a_processor_is_kept_for_a_small_part_of_the_time() {
    for (period, most) in [(MS, 300_000), (10 * MS, 625_000), (100 * MS, 800_000)] {
        assert_eq!(ahead(&after(period, [1_000 * MS; 20])), most, "every {period} ns");
    }
}
