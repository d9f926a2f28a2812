use super::{REPORTED_EVERY_NS, Violations};
use sluice_core::ClientId;
use sluice_core::processes::{Consequence, ViolationKind};

fn is_due(violations: &mut Violations, client: u64, now: u64) -> bool {
    violations.is_due((ClientId(client), ViolationKind::TimeSlice, Consequence::Report), now)
}

#[test]
fn violations_of_one_kind_are_reported_every_ten_seconds() {
    let mut violations = Violations::default();
    assert!(is_due(&mut violations, 1, 0));
    assert!(is_due(&mut violations, 2, REPORTED_EVERY_NS / 2));
    assert!(!is_due(&mut violations, 1, REPORTED_EVERY_NS - 1));
    assert!(is_due(&mut violations, 1, REPORTED_EVERY_NS));
    assert!(!is_due(&mut violations, 2, REPORTED_EVERY_NS));
}

#[test]
fn clients_whose_last_report_is_long_ago_are_not_remembered() {
    let mut violations = Violations::default();
    for client in 0..100 {
        assert!(is_due(&mut violations, client, client * REPORTED_EVERY_NS));
    }
    assert_eq!(violations.reported.len(), 1);
}
