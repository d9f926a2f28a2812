use super::*;

#[test]
fn two_captures_at_once_both_have_to_end() {
    let captures = Captures::new();
    captures.begin(10, 1);
    captures.begin(11, 1);
    captures.end(10);
    assert!(captures.any());
    captures.end(11);
    assert!(!captures.any());
}

#[test]
fn the_end_of_a_capture_that_never_began_changes_nothing() {
    let captures = Captures::new();
    captures.begin(10, 1);
    captures.end(99);
    assert!(captures.any());
}

#[test]
fn the_end_of_a_context_ends_its_captures() {
    let captures = Captures::new();
    assert!(captures.begin(10, 1));
    assert!(!captures.begin(11, 2));
    captures.end_context(1);
    assert!(captures.any(), "the other context's stream is still captured");
    captures.end_context(2);
    assert!(!captures.any());
}
