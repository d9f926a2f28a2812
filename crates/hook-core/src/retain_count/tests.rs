use super::*;

/// Whether a release is certainly not the last.
fn is_certain(retains: &RetainCount) -> bool {
    retains.release(|| ()).is_ok()
}

#[test]
fn release_is_made_only_if_another_retain_is_left() {
    let retains = RetainCount::new();
    (0..3).for_each(|_| retains.retained());
    assert_eq!([(); 4].map(|()| is_certain(&retains)), [true, true, false, false]);
    retains.retained();
    assert!(!is_certain(&retains), "the unseen release does not count later");
}

#[test]
fn after_a_reset_nothing_is_certain() {
    let retains = RetainCount::new();
    (0..3).for_each(|_| retains.retained());
    retains.forget();
    assert!(!is_certain(&retains));
}

#[test]
fn possibly_last_release_waits_for_a_release_in_progress() {
    let retains = RetainCount::new();
    (0..2).for_each(|_| retains.retained());
    let others_wait = retains.release(|| retains.0.try_lock().is_err());
    assert!(others_wait.is_ok_and(|wait| wait));
}
