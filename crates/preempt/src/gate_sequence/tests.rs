use super::*;

#[test]
fn gates_stay_open_when_their_numbers_wrap() {
    let mut sequence = GateSequence { placed: u32::MAX - 2, ..GateSequence::default() };
    for _ in 0..5 {
        let number = sequence.due(100, 50).unwrap();
        assert!(passes(sequence.word(), number));
    }
    sequence.close_behind(u32::MAX);
    assert!((0..3).all(|back| sequence.stops_at(sequence.placed().wrapping_sub(back))));
    assert!((3..1024).all(|back| !sequence.stops_at(sequence.placed().wrapping_sub(back))));
}

#[test]
fn gate_is_placed_after_each_spacing_of_work() {
    let mut sequence = GateSequence::default();
    let placed: Vec<_> = (0..8).map(|_| sequence.due(20, 50).is_some()).collect();
    assert_eq!(placed, [true, false, false, true, false, false, true, false]);
}

#[test]
fn closed_gates_let_needed_work_pass_and_no_more() {
    let mut sequence = GateSequence::default();
    for _ in 0..5 {
        sequence.due(100, 50);
    }
    sequence.add_need(QueueId(1), 2);
    sequence.add_need(QueueId(2), 4);
    sequence.close_behind(0);
    sequence.pass_needed(|waiter| waiter == QueueId(1));
    assert!(passes(sequence.word(), 2) && !passes(sequence.word(), 3));
    sequence.pass_needed(|_| true);
    assert!(passes(sequence.word(), 4) && !passes(sequence.word(), 5));
}
