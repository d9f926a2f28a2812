use super::*;

#[test]
fn levels_are_read_from_metrics_and_compared() {
    let text = "# HELP sluice_level x\nsluice_level{level=\"turn\"} 2\nsluice_level{level=\"token\"} 0\nsluice_levels 7\n";
    let achieved = levels(&Metrics::parse(text));
    assert_eq!(achieved, BTreeMap::from([("turn".to_owned(), 2)]));
    assert!(PreemptionLevel::Full.check(&achieved).is_ok());
    let why = PreemptionLevel::Device.check(&achieved).unwrap_err().to_string();
    assert!(why.contains("2 by turn"), "{why}");
}

#[test]
fn a_row_is_measured_only_at_its_own_level() {
    let by = |levels: &[&str]| levels.iter().map(|level| ((*level).to_owned(), 1)).collect();
    let (hardware_scheduled, gated, queued) =
        (by(&["turn", "token"]), by(&["device", "token"]), by(&["host", "token"]));
    let tokens = by(&["token"]);
    let levels =
        [PreemptionLevel::Host, PreemptionLevel::Device, PreemptionLevel::MpsGate, PreemptionLevel::Full];
    let is_at = |achieved| levels.map(|level| level.check(achieved).is_ok());
    assert_eq!(is_at(&hardware_scheduled), [false, false, false, true]);
    assert_eq!(is_at(&gated), [false, true, true, false]);
    assert_eq!(is_at(&queued), [true, false, false, false]);
    assert_eq!(is_at(&tokens), [false; 4]);
    assert_eq!(is_at(&by(&["turn", "device"])), [false, false, false, true]);
}
