use super::*;

#[test]
fn levels_are_read_from_metrics_and_compared() {
    let text = "# HELP sluice_level x\nsluice_level{level=\"turn\"} 2\nsluice_level{level=\"token\"} 0\nsluice_levels 7\n";
    let achieved = levels(&Metrics::parse(text));
    assert_eq!(achieved, BTreeMap::from([("turn".to_owned(), 2)]));
    assert!(PreemptionLevel::Full.check(&achieved).is_ok());
    let why = PreemptionLevel::Token.check(&achieved).unwrap_err().to_string();
    assert!(why.contains("2 by turn"), "{why}");
}

#[test]
fn a_row_is_measured_only_at_its_own_level() {
    let is_at = |by: &[&str]| {
        let achieved = by.iter().map(|level| ((*level).to_owned(), 1)).collect();
        [PreemptionLevel::Token, PreemptionLevel::Full].map(|level| level.check(&achieved).is_ok())
    };
    assert_eq!(is_at(&["turn", "token"]), [false, true]);
    assert_eq!(is_at(&["token"]), [true, false]);
    assert_eq!(is_at(&[]), [false, false]);
}
