use super::*;

#[test]
fn stream_of_an_older_epoch_has_to_be_noted_again() {
    let thread = ThreadState::empty();
    thread.set_noted(0, 0x7f00_1000, 4);
    assert!(thread.has_noted(0, 0x7f00_1000, 4));
    assert!(!thread.has_noted(0, 0x7f00_1000, 5));
    assert!(!thread.has_noted(1, 0x7f00_1000, 4), "the same handle on another device is another stream");
}

#[test]
fn streams_have_to_be_noted_again_after_a_context_change() {
    let thread = ThreadState::empty();
    thread.set_noted(0, 1, 4);
    thread.forget();
    assert!(!thread.has_noted(0, 1, 4));
}

#[test]
fn nested_call_is_detected() {
    let thread = ThreadState::empty();
    {
        let _outer = thread.enter().expect("the first call enters");
        assert!(thread.enter().is_none());
    }
    assert!(thread.enter().is_some());
}
