use super::*;

const MS: u64 = 1_000_000;
const DUE: u64 = 1_000 * MS;

/// The estimate after wake-ups that were late by the given times.
fn after(period_ns: u64, late_ns: impl IntoIterator<Item = u64>) -> WakeupLatency {
    let mut latency = WakeupLatency::initial();
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
fn late_wake_ups_advance_the_wake_up_by_as_much() {
    let ahead = ahead(&after(10 * MS, [170_000; 20]));
    assert!((170_000..=185_000).contains(&ahead), "{ahead}");
}

#[test]
fn punctual_wake_ups_shorten_the_polling() {
    assert!(ahead(&after(10 * MS, [2_000; 600])) < 15_000);
}

#[test]
fn one_late_wake_up_counts_for_a_while() {
    let late = [2_000; 400].into_iter().chain([200_000]).chain([2_000; 40]);
    assert!(ahead(&after(10 * MS, late)) > 100_000);
}

#[test]
fn polling_is_limited_to_a_part_of_the_interval() {
    for (period, most) in [(MS, 300_000), (10 * MS, 625_000), (100 * MS, 800_000)] {
        assert_eq!(ahead(&after(period, [1_000 * MS; 20])), most, "every {period} ns");
    }
}
