use super::*;

#[test]
fn columns_are_as_wide_as_their_widest_cell_and_notes_do_not_count() {
    let cells = |one: &str, other: &str| Line::Cells(vec![one.to_owned(), other.to_owned()]);
    let lines = [
        Line::heading(&["POD", "GOT"]),
        Line::Section("a line that is longer than every cell".to_owned()),
        cells("größer", "1"),
        cells("b", ""),
    ];
    let expected = ["POD     GOT", "a line that is longer than every cell", "größer  1", "b"];
    assert_eq!(layout(&lines), expected);
}

#[test]
fn amounts_have_units() {
    assert_eq!(memory(64 << 20), "64 MiB");
    assert_eq!(memory(3 << 29), "1.5 GiB");
    assert_eq!(time(0.000_02), "20 µs");
    assert_eq!(time(0.0015), "1.5 ms");
    assert_eq!(time(2.0), "2.0 s");
    assert_eq!(count(1, "pod"), "1 pod");
    assert_eq!(count(0, "pod"), "0 pods");
}

#[test]
fn control_characters_do_not_reach_the_terminal() {
    assert_eq!(printable("a\u{1b}[2Jb\n"), "a [2Jb ");
}
