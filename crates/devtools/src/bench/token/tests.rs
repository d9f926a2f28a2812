use super::*;

#[test]
fn a_handoff_ends_at_the_next_opening_on_the_other_side() {
    let from = Stamps { yielded: vec![100, 200, 300], opened: vec![] };
    let to = Stamps { yielded: vec![], opened: vec![107, 350] };
    assert_eq!(handoffs(&from, &to).collect::<Vec<_>>(), [7, 50]);
}
