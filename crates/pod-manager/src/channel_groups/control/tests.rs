use super::*;
use sluice_nvrm::self_test::{Effect, SelfTestSubject};

#[test]
fn driver_status_becomes_the_cause_of_the_failure() {
    let cause = |error| match failure(error) {
        ControlFailure::Gone => None,
        ControlFailure::Failed(cause, _) => Some(cause),
    };
    let refused = |status| cause(ControlError::Refused(status));
    assert_eq!(refused(NvStatus::INVALID_OBJECT_HANDLE), None);
    assert_eq!(refused(NvStatus::TIMEOUT), Some(Cause::Timeout));
    assert_eq!(cause(ControlError::Timeout), Some(Cause::Timeout));
    assert_eq!(refused(NvStatus(0x51)), Some(Cause::NoMemory));
    assert_eq!(refused(NvStatus(0x0f)), Some(Cause::GpuHung));
    assert_eq!(refused(NvStatus::INVALID_STATE), Some(Cause::InvalidState));
    assert_eq!(refused(NvStatus::INSUFFICIENT_PERMISSIONS), Some(Cause::Refused));
    assert_eq!(cause(ControlError::Io(std::io::ErrorKind::BrokenPipe.into())), Some(Cause::Refused));
}

/// Decides for an unknown and for a known driver, with a result about the first.
fn decide(stops: Effect, slices: Effect) -> [UsableControls; 2] {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("result.json");
    let about = SelfTestSubject::now("700.1", "GPU-1");
    let result = SelfTestResult { about, slices, stops, counts: Effect::Proven };
    std::fs::write(&path, serde_json::to_vec(&result).unwrap()).unwrap();
    let config = Config { self_test: Some(path), ..Config::new("socket", "resources") };
    let drivers = [DriverVersion::Unknown("700.1".into()), DriverVersion::Compared("580.1".into())];
    drivers.map(|driver| allowed_controls(&config, &driver))
}

#[test]
fn result_about_an_unknown_driver_decides_for_it_and_for_no_other() {
    let (proven, all, none) = (Effect::Proven, UsableControls::All, UsableControls::NoControls);
    assert_eq!(decide(proven.clone(), proven.clone()), [all, all]);
    assert_eq!(decide(proven.clone(), Effect::NoEffect), [UsableControls::DisableOnly, all]);
    assert_eq!(decide(Effect::NoEffect, proven.clone()), [none, all]);
    assert_eq!(decide(Effect::inconclusive("busy"), proven), [none, all], "as without one");
}

#[test]
fn known_driver_without_proven_effect_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("result.json");
    let about = SelfTestSubject::now("580.1", "GPU-1");
    let result =
        SelfTestResult { about, slices: Effect::NoEffect, stops: Effect::NoEffect, counts: Effect::Proven };
    std::fs::write(&path, serde_json::to_vec(&result).unwrap()).unwrap();
    let config = Config { self_test: Some(path.clone()), ..Config::new("socket", "resources") };
    let compared = DriverVersion::Compared("580.1".into());
    assert_eq!(allowed_controls(&config, &compared), UsableControls::NoControls);
    std::fs::write(&path, "not a result").unwrap();
    assert_eq!(allowed_controls(&config, &compared), UsableControls::All, "as without one");
}

/// Whether they reach the instances beside it is not known.
#[test]
fn instance_of_a_gpu_without_a_result_is_not_controlled() {
    let of = |uuid: &str| {
        let config = Config::for_agent("socket", "control", uuid);
        allowed_controls(&config, &DriverVersion::Compared("580.1".into()))
    };
    assert_eq!([of("GPU-1"), of("MIG-1")], [UsableControls::All, UsableControls::NoControls]);
}
