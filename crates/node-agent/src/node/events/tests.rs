use super::*;

#[test]
fn note_is_cut_at_a_character_boundary() {
    let note = "é".repeat(600);
    assert_eq!(cut(&note).len(), 1024);
    assert_eq!(cut(&format!("x{note}")).len(), 1023);
    assert_eq!(cut("short"), "short");
}
