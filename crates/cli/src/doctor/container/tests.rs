use super::*;

#[test]
fn a_line_that_is_taken_out_loads_nothing() {
    assert_eq!(named("/a/b.so:/c/libsluice.so /d.so\n"), Some("/c/libsluice.so"));
    assert_eq!(named("# /c/libsluice.so\n/d.so # and /e/libsluice.so"), None);
    assert_eq!(named("#/c/libsluice.so\n/e/libsluice.so"), Some("/e/libsluice.so"));
}
