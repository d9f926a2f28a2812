use super::*;

#[test]
fn only_calls_between_two_markers_count() {
    let mut counter = Counter::default();
    for number in [0, SYS_getppid, 1, 2, SYS_getppid, 3, SYS_getppid, SYS_getppid] {
        counter.entered(number);
    }
    assert_eq!(counter.blocks, [2, 0]);
}
