//! Tests of `result_store.rs`.

use super::*;
use sluice_nvrm::self_test::Effect;

fn write(store: &ResultStore, about: &SelfTestSubject) {
    let proven = || Effect::Proven;
    let result = SelfTestResult { about: about.clone(), slices: proven(), stops: proven(), counts: proven() };
    fs::write(store.file(about), serde_json::to_vec(&result).unwrap()).unwrap();
}

#[test]
fn result_is_found_only_for_its_gpu_driver_and_boot() {
    let folder = tempfile::tempdir().unwrap();
    let store = ResultStore::at(folder.path().to_owned());
    let about = SelfTestSubject::now("580.1", "GPU-1");
    write(&store, &about);
    assert!(store.stored(&about).is_some());
    for other in [SelfTestSubject::now("595.1", "GPU-1"), SelfTestSubject::now("580.1", "GPU-2")] {
        assert_eq!(store.stored(&other), None);
    }
    let after_a_boot = SelfTestSubject { boot: "another".to_owned(), ..about.clone() };
    fs::copy(store.file(&about), store.file(&after_a_boot)).unwrap();
    assert_eq!(store.stored(&after_a_boot), None, "the content counts, not the file name");
}

#[test]
fn older_results_of_a_gpu_are_removed_and_those_of_others_stay() {
    let folder = tempfile::tempdir().unwrap();
    let store = ResultStore::at(folder.path().to_owned());
    let all = [("1", "GPU-1"), ("2", "GPU-1"), ("1", "GPU-11")]
        .map(|(driver, gpu)| SelfTestSubject::now(driver, gpu));
    all.iter().for_each(|about| write(&store, about));
    store.forget("GPU-1").unwrap();
    assert_eq!(all.map(|about| store.stored(&about).is_some()), [false, false, true]);
}

#[test]
fn remains_of_killed_tests_are_removed_and_no_version_escapes_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("sluice-doctor-abc")).unwrap();
    let store = ResultStore::at(folder.path().to_owned());
    assert_eq!(store.entries().count(), 0);
    let file = store.file(&SelfTestSubject::now("../../../etc/passwd", "GPU-1"));
    assert_eq!(file.parent(), Some(folder.path()));
}
