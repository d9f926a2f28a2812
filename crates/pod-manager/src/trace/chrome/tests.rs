use super::super::event::Label;
use super::*;

const MS: u64 = 1_000_000;

fn time(at_ns: u64) -> TraceEvent {
    TraceEvent::Time { at_ns }
}

fn quantum(process: u64, begin_ns: u64, end_ns: u64) -> [TraceEvent; 2] {
    [
        TraceEvent::QuantumBegan { at_ns: begin_ns, process },
        TraceEvent::QuantumEnded { at_ns: end_ns, process },
    ]
}

/// A trace from 100 to 200 ms of a client with one process.
fn trace(events: impl IntoIterator<Item = TraceEvent>) -> Value {
    let client = TraceEvent::Client { client: 1, name: "team/\"pod\"".to_owned() };
    let process = TraceEvent::Process { process: 7, client: 1, pid: Some(4711) };
    let state = [time(100 * MS), client, process];
    let events: Vec<TraceEvent> = state.into_iter().chain(events).chain([time(200 * MS)]).collect();
    let mut text = Vec::new();
    write_chrome(&events, &mut text).unwrap();
    serde_json::from_slice(&text).unwrap()
}

/// Begin and length of the slices of this name, microseconds.
fn slices(trace: &Value, name: &str) -> Vec<(f64, f64)> {
    let rows = trace["traceEvents"].as_array().unwrap();
    let named = rows.iter().filter(|row| row["ph"] == "X" && row["name"] == name);
    named.map(|row| (row["ts"].as_f64().unwrap(), row["dur"].as_f64().unwrap())).collect()
}

#[test]
fn quantum_is_on_the_track_of_its_process_and_on_the_gpu() {
    let trace = trace(quantum(7, 110 * MS + 1, 160 * MS + 2));
    assert_eq!(slices(&trace, "quantum"), [(110_000.001, 50_000.001)]);
    let rows = trace["traceEvents"].as_array().unwrap();
    let on_gpu: Vec<&Value> = rows.iter().filter(|row| row["name"] == "team/\"pod\"").collect();
    let of = |row: &&Value| (row["ph"].clone(), row["pid"].clone(), row["id2"]["local"].clone());
    assert_eq!(
        on_gpu.iter().map(of).collect::<Vec<_>>(),
        [("b".into(), 1.into(), "7".into()), ("e".into(), 1.into(), "7".into())]
    );
    let track = |row: &&Value| row["name"] == "thread_name" && row["args"]["name"] == "process 4711";
    let quantum = rows.iter().find(|row| row["name"] == "quantum").unwrap();
    assert_eq!(rows.iter().find(track).map(|row| &row["tid"]), Some(&quantum["tid"]));
}

#[test]
fn what_is_cut_off_by_the_trace_is_shown_within_it() {
    let [began, _] = quantum(7, 50 * MS, 0);
    assert_eq!(slices(&trace([began]), "quantum"), [(100_000.0, 100_000.0)]);
}

#[test]
fn gap_is_left_where_events_were_lost() {
    let [began, _] = quantum(7, 105 * MS, 0);
    let lost = TraceEvent::Lost { at_ns: 150 * MS, count: 9 };
    let trace = trace([began.clone(), time(120 * MS), lost, began]);
    assert_eq!(slices(&trace, "quantum"), [(105_000.0, 15_000.0), (150_000.0, 50_000.0)]);
    assert_eq!(trace["otherData"]["lost_events"], 9);
    let rows = trace["traceEvents"].as_array().unwrap();
    assert!(rows.iter().any(|row| row["name"] == "events lost" && row["args"]["events"] == 9));
}

#[test]
fn readings_of_one_burst_are_one_slice() {
    let work = |begin: u64, end: u64| TraceEvent::Work { begin_ns: begin * MS, end_ns: end * MS, process: 7 };
    let trace = trace([work(110, 111), work(111, 112), work(112, 113), work(120, 121)]);
    assert_eq!(slices(&trace, "work"), [(110_000.0, 3_000.0), (120_000.0, 1_000.0)]);
}

#[test]
fn slot_is_shown_in_each_cycle_while_it_is_in_force() {
    let slot = |at_ns: u64, start: u64, end: u64| TraceEvent::GangSlot {
        at_ns: at_ns * MS,
        client: 1,
        start_ns: start * MS,
        end_ns: end * MS,
        cycle_ns: 40 * MS,
    };
    let trace = trace([slot(100, 0, 10), slot(165, 10, 20)]);
    let expected = [(120_000.0, 10_000.0), (160_000.0, 5_000.0), (170_000.0, 10_000.0)];
    assert_eq!(slices(&trace, "slot"), expected);
}

#[test]
fn decision_is_a_point_with_its_reason() {
    let decision = Decision::Revoked { reason: Label::Borrowed("not_returned") };
    let event = TraceEvent::Decision { at_ns: 150 * MS, client: 1, process: Some(7), decision };
    let trace = trace([event]);
    let rows = trace["traceEvents"].as_array().unwrap();
    let row = rows.iter().find(|row| row["name"] == "revoked").unwrap();
    assert_eq!((&row["ph"], &row["ts"]), (&"i".into(), &150_000.0.into()));
    assert_eq!(row["args"], json!({ "process": "process 4711", "reason": "not_returned" }));
}
