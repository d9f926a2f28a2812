use super::*;
use crate::trace::TraceEvent;

fn time(at_ns: u64) -> TraceEvent {
    TraceEvent::Time { at_ns }
}

fn record(tracer: &mut Tracer, event: TraceEvent) {
    tracer.recording().unwrap().push(event);
}

#[test]
fn there_is_no_recording_and_no_timer_without_a_reader() {
    let mut tracer = Tracer::default();
    assert!(tracer.recording().is_none() && tracer.read(0, 1).is_none() && tracer.next_sample().is_none());
}

#[test]
fn recording_lasts_until_the_last_reader_has_left() {
    let mut tracer = Tracer::default();
    assert!(tracer.join() && tracer.join());
    record(&mut tracer, time(1));
    tracer.leave();
    let batch = tracer.read(0, 2).unwrap();
    assert_eq!((batch.events, batch.next), (vec![time(1), time(2)], 1));
    tracer.leave();
    assert!(!tracer.is_on());
    assert!(tracer.join());
    assert_eq!(tracer.read(0, 3).unwrap().events, [time(3)], "the earlier recording is gone");
}

#[test]
fn fifth_reader_is_refused_until_another_one_leaves() {
    let mut tracer = Tracer::default();
    assert!((0..MAX_READERS).all(|_| tracer.join()));
    assert!(!tracer.join());
    tracer.leave();
    assert!(tracer.join());
}

#[test]
fn reader_that_reads_too_late_receives_the_number_of_lost_events_and_the_state() {
    let mut tracer = Tracer::default();
    tracer.join();
    let recording = tracer.recording().unwrap();
    recording.name_client(sluice_core::ClientId(5), "five");
    (0..40_000).for_each(|_| record(&mut tracer, time(1)));
    let batch = tracer.read(0, 2).unwrap();
    let client = TraceEvent::Client { client: 5, name: "five".to_owned() };
    assert_eq!(batch.events, [TraceEvent::Lost { at_ns: 2, count: 40_001 }, client]);
    assert_eq!(tracer.read(batch.next, 3).unwrap().events, [time(3)]);
}
