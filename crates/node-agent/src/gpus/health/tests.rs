//! The health of one GPU, case by case and over all sequences of observations.

use super::*;
use proptest::prelude::*;

const THREE: NonZeroU32 = NonZeroU32::new(3).unwrap();

fn after(observations: &[Observation]) -> Health {
    (0..).zip(observations).fold(Health::Healthy, |health, (now, one)| health.after(one.clone(), now, THREE))
}

#[test]
fn critical_xid_makes_gpu_unhealthy_with_a_reason() {
    let health = after(&[Observation::Good, Observation::CriticalXid(79)]);
    assert_eq!(health, Health::Unhealthy { reason: Fault::Xid(79), since_ns: 1, good_scans: 0 });
    assert_eq!(
        health.reason().map(ToString::to_string).as_deref(),
        Some("Xid 79: GPU has fallen off the bus")
    );
}

#[test]
fn recovery_needs_consecutive_good_scans() {
    use Observation::{Bad, CriticalXid, Good};
    let nearly = [CriticalXid(79), Good, Good];
    assert!(matches!(after(&nearly), Health::Unhealthy { since_ns: 0, good_scans: 2, .. }));
    let interrupted = [&nearly[..], &[Bad(Fault::Lost), Good, Good]].concat();
    assert_ne!(after(&interrupted), Health::Healthy);
    assert_eq!(after(&[&interrupted[..], &[Good]].concat()), Health::Healthy);
}

#[test]
fn needed_reset_keeps_gpu_unhealthy() {
    let asks = Observation::Bad(Fault::NeedsRecovery(Recovery::Reset));
    let health = after(&[vec![Observation::CriticalXid(48)], vec![asks.clone(); 20]].concat());
    // The Xid is the reason; the recovery action is reported only without an Xid.
    assert_eq!(health.reason(), Some(&Fault::Xid(48)));
    assert_eq!(
        after(&[asks]).reason().map(ToString::to_string).as_deref(),
        Some("the driver asks for recovery: reset the GPU")
    );
}

#[test]
fn latest_xid_is_the_reason_and_first_fault_the_beginning() {
    let health = after(&[Observation::Bad(Fault::Lost), Observation::Good, Observation::CriticalXid(95)]);
    assert_eq!(health, Health::Unhealthy { reason: Fault::Xid(95), since_ns: 0, good_scans: 0 });
}

fn observation() -> impl Strategy<Value = Observation> {
    prop_oneof![
        3 => Just(Observation::Good),
        1 => Just(Observation::Bad(Fault::Lost)),
        1 => any::<u64>().prop_map(Observation::CriticalXid),
    ]
}

proptest! {
    #[test]
    fn healthy_exactly_if_enough_good_scans_follow_the_last_fault(
        observations in prop::collection::vec(observation(), 0..40), needed in 1..6u32,
    ) {
        let needed = NonZeroU32::new(needed).unwrap();
        let health = (0..).zip(&observations).fold(Health::Healthy, |health, (now, one)| health.after(one.clone(), now, needed));
        let good = observations.iter().rev().take_while(|one| **one == Observation::Good).count();
        let never_sick = good == observations.len();
        let expected = never_sick || good >= usize::try_from(needed.get()).unwrap();
        prop_assert_eq!(health == Health::Healthy, expected);
    }

    #[test]
    fn unhealthy_period_begins_with_its_first_fault(observations in prop::collection::vec(observation(), 0..40)) {
        let mut health = Health::Healthy;
        let mut began = None;
        for (now, one) in (0..).zip(observations) {
            health = health.after(one, now, THREE);
            began = if health == Health::Healthy { None } else { began.or(Some(now)) };
            prop_assert_eq!(health.since_ns(), began);
            prop_assert_eq!(health.reason().is_some(), began.is_some());
        }
    }
}

#[test]
fn fault_names_the_recovery_that_the_driver_asks_for() {
    let text = |code| Recovery::from_code(code).map(|recovery| Fault::NeedsRecovery(recovery).to_string());
    assert_eq!(text(2).as_deref(), Some("the driver asks for recovery: reboot the node"));
    assert_eq!(text(9).as_deref(), Some("the driver asks for recovery: recovery action 9"));
}
