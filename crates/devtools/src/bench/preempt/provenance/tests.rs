use super::*;

#[test]
fn dates_are_those_of_the_calendar() {
    assert_eq!(text_of(0), "1970-01-01T00:00:00+00:00");
    assert_eq!(text_of(951_827_696), "2000-02-29T12:34:56+00:00");
    assert_eq!(text_of(1_795_284_000), "2026-11-21T18:00:00+00:00");
    assert_eq!(text_of(4_107_542_399), "2100-02-28T23:59:59+00:00");
    assert_eq!(text_of(4_107_542_400), "2100-03-01T00:00:00+00:00");
}
