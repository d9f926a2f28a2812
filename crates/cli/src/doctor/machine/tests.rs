use super::*;
use crate::doctor::child::NvmlFacts;
use crate::doctor::finding::CheckStatus;
use sluice_load::driver::DriverFacts;

fn reported(change: impl FnOnce(&mut DriverFacts, &mut NvmlFacts)) -> Reported {
    let mut facts = DriverFacts {
        cuda: 13_000,
        devices: 1,
        name: "GPU".to_owned(),
        uuid: "GPU-1".to_owned(),
        compute_mode: 0,
        mps: Some(false),
    };
    let mut nvml = NvmlFacts { driver: "580.1".to_owned(), mig: Some(false) };
    change(&mut facts, &mut nvml);
    Reported { driver: Ok(facts), nvml: Ok(nvml) }
}

#[track_caller]
fn is(finding: &Finding, status: CheckStatus, found: &str) {
    assert_eq!(finding.status, status, "{finding:?}");
    assert!(finding.found.contains(found), "{finding:?}");
    assert_eq!(
        finding.next.is_none(),
        matches!(status, CheckStatus::Ok | CheckStatus::Skipped),
        "{finding:?}"
    );
}

#[test]
fn a_gpu_that_accepts_no_second_process_cannot_be_shared() {
    is(&compute_mode(&reported(|_, _| ())), CheckStatus::Ok, "default");
    is(&compute_mode(&reported(|facts, _| facts.compute_mode = 2)), CheckStatus::Broken, "prohibited");
    is(&compute_mode(&reported(|facts, _| facts.compute_mode = 3)), CheckStatus::Broken, "one process");
    is(&mig_mode(&reported(|_, nvml| nvml.mig = Some(true))), CheckStatus::Broken, "MIG is on");
    is(&mig_mode(&reported(|_, nvml| nvml.mig = None)), CheckStatus::Ok, "none");
}

#[test]
fn a_missing_driver_is_distinguished_from_a_driver_without_a_gpu() {
    is(&library(&reported(|facts, _| facts.devices = 0)), CheckStatus::Broken, "no GPU");
    let silent = Reported { driver: Err("cannot load libcuda.so.1".into()), nvml: Err("no library".into()) };
    is(&library(&silent), CheckStatus::Broken, "libcuda.so.1");
    is(&mig_mode(&silent), CheckStatus::Inconclusive, "no library");
    is(&compute_mode(&silent), CheckStatus::Skipped, "no driver");
}

#[test]
fn an_unknown_branch_is_degraded_and_an_unseen_one_inconclusive() {
    is(&branch(&DriverVersion::Compared("580.1".into())), CheckStatus::Ok, "580.1");
    is(&branch(&DriverVersion::Unknown("700.1".into())), CheckStatus::Degraded, "700.1");
    is(&branch(&DriverVersion::NotVisible), CheckStatus::Inconclusive, "neither");
}

#[test]
fn a_line_that_is_taken_out_loads_nothing() {
    assert_eq!(named("/a/b.so:/c/libsluice.so /d.so\n"), Some("/c/libsluice.so"));
    assert_eq!(named("# /c/libsluice.so\n/d.so # and /e/libsluice.so"), None);
    assert_eq!(named("#/c/libsluice.so\n/e/libsluice.so"), Some("/e/libsluice.so"));
}
