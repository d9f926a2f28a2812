use super::*;

fn time(at_ns: u64) -> TraceEvent {
    TraceEvent::Time { at_ns }
}

fn filled(events: u64) -> Ring {
    let mut ring = Ring::new(4);
    (0..events).for_each(|at| ring.push(time(at)));
    ring
}

#[test]
fn reader_receives_each_event_once_in_pieces() {
    let ring = filled(3);
    assert_eq!(ring.read(0, 2), Some(vec![time(0), time(1)]));
    assert_eq!(ring.read(2, 2), Some(vec![time(2)]));
    assert_eq!(ring.read(3, 2), Some(vec![]));
}

#[test]
fn reader_behind_the_oldest_event_receives_none() {
    let ring = filled(10);
    assert_eq!(ring.read(5, 2), None);
    assert_eq!(ring.read(6, 2), Some(vec![time(6), time(7)]));
}

#[test]
fn full_ring_grows_no_further() {
    let mut ring = filled(4);
    let before = ring.events.capacity();
    (0..1000).for_each(|at| ring.push(time(at)));
    assert_eq!((ring.events.len(), ring.events.capacity()), (4, before));
}
