use super::*;

#[test]
fn two_captures_at_once_both_have_to_end() {
    let captures = Captures::new();
    captures.begin(10);
    captures.begin(11);
    captures.end(10);
    assert!(captures.any());
    captures.end(11);
    assert!(!captures.any());
}

#[test]
fn the_end_of_a_capture_that_never_began_changes_nothing() {
    let captures = Captures::new();
    captures.begin(10);
    captures.end(99);
    assert!(captures.any());
}
