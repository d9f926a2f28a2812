use super::*;

#[test]
fn each_reason_has_a_counter_of_its_own() {
    for (index, reason) in Bypass::ALL.iter().enumerate() {
        assert_eq!(reason.index(), index);
    }
    assert!(Bypass::ALL.len() <= 32, "the report page holds 32 counters");
}

#[test]
fn no_two_reasons_share_a_name() {
    for (index, reason) in Bypass::ALL.iter().enumerate() {
        assert!(Bypass::ALL.iter().skip(index + 1).all(|other| other.label() != reason.label()));
    }
}
