use super::*;
use proptest::prelude::*;

#[test]
fn application_xids_differ_from_critical_ones() {
    let policy = Policy::default();
    assert!(APPLICATION_XIDS.iter().all(|code| policy.class(*code) == Class::Application));
    assert!(
        [48, 63, 64, 74, 79, 92, 94, 95, 119, 9_999]
            .iter()
            .all(|code| policy.class(*code) == Class::Critical)
    );
    assert_eq!(policy.class(154), Class::Informational);
}

#[test]
fn operator_lists_change_the_class_and_critical_wins() {
    let policy = Policy::new([63, 92, 31], [31, 154]);
    let classes = [63, 92, 31, 154, 13].map(|code| policy.class(code));
    use Class::{Application, Critical};
    assert_eq!(classes, [Application, Application, Critical, Critical, Application]);
}

#[test]
fn descriptions_contain_the_number_of_unknown_xids() {
    assert_eq!(describe(79), "Xid 79: GPU has fallen off the bus");
    assert_eq!(describe(12_345), "Xid 12345");
}

proptest! {
    #[test]
    fn lists_round_trip_and_other_text_is_refused(codes: Vec<u64>, other in "[0-9]{0,3}[a-z.-][a-z0-9]{0,5}") {
        let text = codes.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
        prop_assert_eq!(parse_list(&text), Ok(codes));
        let wrong = format!("13,{other}");
        prop_assert!(parse_list(&wrong).unwrap_err().contains(&other));
    }
}
