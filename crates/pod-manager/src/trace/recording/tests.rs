use super::*;
use sluice_core::channel_groups::GroupId;

const MS: u64 = 1_000_000;

fn recorded(recording: &Recording) -> Vec<TraceEvent> {
    recording.ring.read(0, usize::MAX).unwrap()
}

#[test]
fn slots_are_recorded_when_they_change_and_when_they_end() {
    let mut recording = Recording::default();
    let slots = |start_ns: u64| {
        Slots::from_iter([1, 2].map(|id| (ClientId(id), Slot { start_ns: start_ns * id, end_ns: 90 * MS })))
    };
    let of = |at_ns: u64, client: u64, start_ns: u64| TraceEvent::GangSlot {
        at_ns,
        client,
        start_ns,
        end_ns: 90 * MS,
        cycle_ns: CYCLE_NS,
    };
    recording.update_slots(&slots(0), 1);
    recording.update_slots(&slots(0), 2);
    recording.update_slots(&slots(MS), 3);
    let state = recording.begin(4).events;
    assert_eq!(state[1..], [of(4, 1, MS), of(4, 2, 2 * MS)]);
    recording.update_slots(&Slots::default(), 5);
    let [one, two] = [1, 2].map(|client| TraceEvent::GangSlotEnded { at_ns: 5, client });
    let expected = [of(1, 1, 0), of(1, 2, 0), of(3, 1, MS), of(3, 2, 2 * MS), one, two];
    assert_eq!(recorded(&recording), expected);
}

#[test]
fn control_begins_when_the_driver_was_called_and_not_before_its_request() {
    let began = |took_us: u64| {
        let mut recording = Recording::default();
        recording.control_requested(10 * MS);
        let control = Control { group: GroupId(3), op: ControlOp::Disable };
        let took = Duration::from_micros(took_us);
        recording.control_ended(control, ControlOutcome::Done, took, None, 11 * MS);
        match recorded(&recording)[..] {
            [TraceEvent::Control { begin_ns, .. }] => begin_ns,
            ref other => panic!("{other:?}"),
        }
    };
    assert_eq!(began(400), 10 * MS + 600_000);
    assert_eq!(began(5_000), 10 * MS);
}

#[test]
fn burst_that_has_ended_is_placed_where_the_process_became_idle() {
    let begin = |busy: bool, since_ns: u64| {
        let mut recording = Recording::default();
        recording.worked(ProcessId(1), (7 * MS, 2 * MS), Activity { busy, since_ns }, 10 * MS);
        recorded(&recording)
    };
    let work = |begin_ns: u64| [TraceEvent::Work { begin_ns, end_ns: begin_ns + 2 * MS, process: 1 }];
    assert_eq!(begin(true, 3 * MS), work(8 * MS));
    assert_eq!(begin(false, 9 * MS + 500_000), work(7 * MS + 500_000));
    // A process can write any time.
    assert_eq!(begin(false, 0), work(7 * MS));
    assert_eq!(begin(false, u64::MAX), work(8 * MS));
}
