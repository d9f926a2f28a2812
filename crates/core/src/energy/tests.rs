use super::*;
use proptest::prelude::*;

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

/// A meter with a first reading at 0 that knows an idle power of 100 W.
fn idle_meter() -> EnergyMeter {
    let mut meter = EnergyMeter::default();
    assert_eq!(meter.read(5_000, 0, std::iter::empty()), None);
    let parts = meter.read(105_000, S, std::iter::empty()).unwrap();
    assert_eq!(parts, EnergyParts { idle_mj: 100_000, clients: Vec::new() });
    meter
}

fn clients(times: &[u64]) -> impl Iterator<Item = (ClientId, u64)> {
    (0..).map(ClientId).zip(times.to_vec())
}

#[test]
fn energy_beyond_idle_power_is_divided_by_execution_time() {
    let mut meter = idle_meter();
    // 300 W for a second, in which the clients executed for 600 and 200 ms.
    let parts = meter.read(405_000, 2 * S, clients(&[600 * MS, 200 * MS])).unwrap();
    let expected = vec![(ClientId(0), 150_000), (ClientId(1), 50_000)];
    assert_eq!(parts, EnergyParts { idle_mj: 100_000, clients: expected });
    // Only what they executed since then counts.
    let parts = meter.read(705_000, 3 * S, clients(&[600 * MS, 700 * MS])).unwrap();
    assert_eq!(parts, EnergyParts { idle_mj: 100_000, clients: vec![(ClientId(1), 200_000)] });
}

#[test]
fn without_a_time_of_idleness_all_energy_is_the_clients() {
    let mut meter = EnergyMeter::default();
    meter.read(0, 0, clients(&[0]));
    let parts = meter.read(300_000, S, clients(&[S / 2])).unwrap();
    assert_eq!(parts, EnergyParts { idle_mj: 0, clients: vec![(ClientId(0), 300_000)] });
}

#[test]
fn idle_power_follows_later_times_of_idleness() {
    let mut meter = idle_meter();
    let (mut total_mj, mut now) = (105_000, S);
    for _ in 0..40 {
        (total_mj, now) = (total_mj + 60_000, now + S);
        meter.read(total_mj, now, std::iter::empty()).unwrap();
    }
    let parts = meter.read(total_mj + 200_000, now + S, clients(&[S])).unwrap();
    assert!((60_000..61_000).contains(&parts.idle_mj), "{parts:?}");
}

#[test]
fn reading_soon_after_the_last_one_waits_for_the_next() {
    let mut meter = idle_meter();
    assert_eq!(meter.read(150_000, S + 199 * MS, clients(&[50 * MS])), None);
    let parts = meter.read(225_000, S + 400 * MS, clients(&[100 * MS])).unwrap();
    assert_eq!(parts, EnergyParts { idle_mj: 40_000, clients: vec![(ClientId(0), 80_000)] });
}

#[test]
fn counter_that_begins_anew_is_a_first_reading() {
    let mut meter = idle_meter();
    assert_eq!(meter.read(1_000, 2 * S, clients(&[S])), None);
    assert_eq!(meter.read(301_000, 3 * S, clients(&[2 * S])).unwrap().idle_mj, 100_000);
}

proptest! {
    /// However readings and clients vary, nothing is lost and nothing is attributed twice.
    #[test]
    fn parts_add_up_to_the_counter(
        periods in proptest::collection::vec((1..2_000u64, 0..1_000_000u64, proptest::collection::vec(0..400u64, 0..4)), 1..40),
    ) {
        let (mut meter, mut now, mut total_mj, mut attributed) = (EnergyMeter::default(), 0, 0, 0);
        let mut executed = [0; 4];
        meter.read(0, 0, std::iter::empty());
        for (ms, energy_mj, times) in periods {
            (now, total_mj) = (now + ms * MS, total_mj + energy_mj);
            times.iter().zip(&mut executed).for_each(|(ms, sum)| *sum += ms * MS);
            if let Some(parts) = meter.read(total_mj, now, clients(&executed)) {
                attributed += parts.idle_mj + parts.clients.iter().map(|(_, mj)| mj).sum::<u64>();
                prop_assert_eq!(attributed, total_mj);
            }
        }
    }
}
