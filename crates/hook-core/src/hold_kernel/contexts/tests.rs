use super::*;

#[test]
fn late_result_of_an_ended_context_does_not_affect_the_next_one_of_its_handle() {
    let mut contexts = HoldContexts::none();
    contexts.request(7);
    contexts.set_prepared(7, Some("stream"));
    assert_eq!(contexts.remove(7), Some("stream"));
    // The launch and the resources of the ended context arrive only now.
    contexts.set_prepared(7, None);
    assert_eq!(contexts.get(7), None);
    contexts.request(7);
    assert_eq!(contexts.next_to_prepare(), Some(7));
}

#[test]
fn unable_context_is_not_retried() {
    let mut contexts = HoldContexts::none();
    contexts.request(7);
    contexts.set_prepared(7, Some("stream"));
    contexts.set_prepared(7, None);
    contexts.request(7);
    assert_eq!(contexts.next_to_prepare(), None);
    assert_eq!(contexts.ready(7), None);
}
