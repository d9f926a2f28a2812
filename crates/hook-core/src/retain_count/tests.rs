use super::*;

/// Whether a release is certainly not the last.
fn is_certain(retains: &RetainCount) -> bool {
    retains.release(|| ()).is_ok()
}

#[test]
fn release_is_made_only_if_another_retain_is_left() {
    let retains = RetainCount::new();
    (0..3).for_each(|_| retains.retain(|| (), |()| true));
    assert_eq!([(); 4].map(|()| is_certain(&retains)), [true, true, false, false]);
    retains.retain(|| (), |()| true);
    assert!(!is_certain(&retains), "the unseen release does not count later");
}

#[test]
fn after_a_reset_nothing_is_certain() {
    let retains = RetainCount::new();
    (0..3).for_each(|_| retains.retain(|| (), |()| true));
    retains.forget();
    assert!(!is_certain(&retains));
}

#[test]
fn possibly_last_release_waits_for_a_release_in_progress() {
    let retains = RetainCount::new();
    (0..2).for_each(|_| retains.retain(|| (), |()| true));
    let others_wait = retains.release(|| retains.seen.try_lock().is_err());
    assert!(others_wait.is_ok_and(|wait| wait));
}

#[test]
fn retain_waits_until_a_release_that_may_be_the_last_is_dealt_with() {
    let count = RetainCount::new();
    count.retain(|| (), |()| true);
    let order = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        let ending = count.begin_end();
        let retain = scope.spawn(|| count.retain(|| lock(&order).push("retained"), |()| true));
        std::thread::sleep(std::time::Duration::from_millis(20));
        lock(&order).push("ended");
        drop(ending);
        retain.join().expect("the retain returns");
    });
    assert_eq!(*lock(&order), ["ended", "retained"]);
}
