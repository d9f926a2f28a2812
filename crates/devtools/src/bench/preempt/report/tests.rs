use clap::Parser;

use super::super::row::tests::row;
use super::*;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    flags: Arguments,
}

fn flags(more: &[&str]) -> Arguments {
    Cli::parse_from([&["preempt"], more].concat()).flags
}

#[test]
fn a_report_of_other_conditions_is_not_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("preempt.json");
    let file = file.to_str().unwrap();
    let begun = flags(&["--json", file, "--requests", "500"]);
    Report::begin(&begun).unwrap().save(&begun).unwrap();
    let resumed = |more: &[&str]| Report::begin(&flags(&[&["--resume", file], more].concat()));
    assert!(resumed(&["--requests", "500"]).is_ok());
    for other in [
        &["--requests", "20"] as &[&str],
        &["--requests", "500", "--blocks", "2"],
        &["--requests", "500", "--lead-us", "100"],
    ] {
        let why = resumed(other).unwrap_err().to_string();
        assert!(why.contains(file) && why.contains("other requests"), "{why}");
    }
}

#[test]
fn rows_of_two_gpus_are_not_mixed_in_a_report() {
    let mut report = Report::begin(&flags(&[])).unwrap();
    report.set_gpu("one").unwrap();
    report.set_gpu("two").unwrap();
    report.add(vec![Ok(row(10, PreemptionLevel::Full))]).unwrap();
    report.set_gpu("two").unwrap();
    let why = report.set_gpu("one").unwrap_err().to_string();
    assert!(why.contains("one") && why.contains("two"), "{why}");
    assert_eq!(report.gpu, "two");
}

#[test]
fn a_measured_row_is_not_missing() {
    let mut report = Report::begin(&flags(&[])).unwrap();
    report.add(vec![Ok(row(10, PreemptionLevel::Full))]).unwrap();
    let flags = flags(&["--be-kernel-us", "10", "100"]);
    let missing = |level| report.missing(&flags, level);
    assert_eq!(missing(PreemptionLevel::Full), [(10, vec![true]), (100, vec![false, true])]);
    assert_eq!(missing(PreemptionLevel::Token), [(10, vec![false, true]), (100, vec![false, true])]);
}

#[test]
fn the_date_is_now_in_utc_to_the_second() {
    let date = date();
    let form: String = date.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    assert_eq!(form, "0000-00-00T00:00:00+00:00");
    let age = jiff::Timestamp::now().duration_since(date.parse().unwrap());
    assert!((0..60).contains(&age.as_secs()), "{date}");
}
