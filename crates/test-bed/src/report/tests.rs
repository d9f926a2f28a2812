use super::*;

#[test]
fn one_failed_check_fails_the_report_and_is_named() {
    let mut report = Report::default();
    report.check(true, "shares");
    assert!(report.is_ok());
    report.check(false, "memory");
    assert!(!report.is_ok());
    assert!(report.to_string().contains("FAILED  memory"));
    assert_eq!(report.into_result(), Err("memory".to_owned()));
}
