use super::*;

/// A tenant may attach without end by processes that end at once.
#[test]
fn without_a_search_no_process_is_noted_for_one() {
    let mut unhooked = Unhooked::default();
    for pid in 0..10 {
        unhooked.inspect_next((pid, 7));
        unhooked.inspect_again((pid, 7), 0);
        unhooked.detached((pid, 7));
    }
    let noted =
        [&unhooked.inspect_next, &unhooked.inspect_again, &unhooked.attached_before].map(HashSet::len);
    assert_eq!(noted, [0; 3]);
}
