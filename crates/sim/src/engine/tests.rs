//! The engine, stepped by the tests.

use super::*;

fn kernel(us: u64, sms: u32) -> Command {
    Command::Work(Work::Kernel { ns: us * 1_000, sms, name: 0 })
}

/// A process with one context, at time 0.
fn context() -> (Engine, GroupId) {
    let mut engine = Engine::new(1 << 30, 0);
    let owner = engine.account_mut().open(1, "");
    engine.account_mut().name(owner, "k");
    let group = engine.add_group(owner, params::TIMESLICE_NS);
    (engine, group)
}

/// The time at which the last command of each stream was completed.
fn times(engine: &mut Engine, streams: &[StreamId]) -> Vec<u64> {
    let mut times = vec![0; streams.len()];
    while let Some(at) = engine.next_event() {
        engine.advance(at);
        for advanced in engine.take_advanced() {
            if let Some(index) = streams.iter().position(|stream| *stream == advanced.stream) {
                times[index] = at;
            }
        }
    }
    times
}

/// The time at which the first kernel of a context begins if it is launched at time 0.
const BEGIN: u64 = params::SUBMIT_NS + params::LOAD_NS;

#[test]
fn kernel_begins_after_its_submission_and_lasts_its_duration() {
    let (mut engine, group) = context();
    let stream = engine.add_stream(group, StreamKind::NonBlocking, 0, 0);
    engine.submit(stream, 5_000, kernel(100, 132)).unwrap();
    engine.advance(1_000_000);
    assert_eq!(engine.completed(stream), Some(1));
    let timeline = engine.account().timeline(0, 1_000_000);
    let begin = 5_000 + BEGIN;
    assert_eq!((timeline.len(), timeline[0].start_ns, timeline[0].end_ns), (1, begin, begin + 100_000));
}

#[test]
fn kernels_of_several_streams_run_side_by_side_while_they_fit() {
    let (mut engine, group) = context();
    let streams: Vec<_> = (0..3).map(|_| engine.add_stream(group, StreamKind::NonBlocking, 0, 0)).collect();
    for (stream, sms) in streams.iter().zip([100, 32, 1]) {
        engine.submit(*stream, 0, kernel(100, sms)).unwrap();
    }
    assert_eq!(times(&mut engine, &streams), [BEGIN + 100_000, BEGIN + 100_000, BEGIN + 200_000]);
}

#[test]
fn stream_of_higher_priority_runs_first() {
    let (mut engine, group) = context();
    let low = engine.add_stream(group, StreamKind::NonBlocking, 0, 0);
    let high = engine.add_stream(group, StreamKind::NonBlocking, -5, 0);
    engine.submit(low, 0, kernel(100, 132)).unwrap();
    engine.submit(low, 0, kernel(100, 132)).unwrap();
    engine.submit(high, 0, kernel(100, 132)).unwrap();
    assert_eq!(times(&mut engine, &[low, high]), [BEGIN + 300_000, BEGIN + 100_000]);
}

#[test]
fn the_legacy_stream_and_the_blocking_ones_wait_for_each_other() {
    let (mut engine, group) = context();
    let kinds = [StreamKind::Blocking, StreamKind::Legacy, StreamKind::Blocking, StreamKind::NonBlocking];
    let streams: Vec<_> = kinds.iter().map(|kind| engine.add_stream(group, *kind, 0, 0)).collect();
    for stream in &streams {
        engine.submit(*stream, 0, kernel(100, 10)).unwrap();
    }
    let after = |kernels: u64| BEGIN + kernels * 100_000;
    assert_eq!(times(&mut engine, &streams), [after(1), after(2), after(3), after(1)]);
}

#[test]
fn copies_run_beside_kernels_and_one_at_a_time_per_engine() {
    let (mut engine, group) = context();
    let streams: Vec<_> = (0..3).map(|_| engine.add_stream(group, StreamKind::NonBlocking, 0, 0)).collect();
    let copy = |engine| Command::Work(Work::Copy { engine, bytes: 5_500_000 });
    engine.submit(streams[0], 0, copy(CopyEngine::ToDevice)).unwrap();
    engine.submit(streams[1], 0, copy(CopyEngine::ToDevice)).unwrap();
    engine.submit(streams[2], 0, kernel(100, 132)).unwrap();
    let one = 100_000 + params::COPY_LATENCY_NS;
    let begin = params::SUBMIT_NS;
    assert_eq!(times(&mut engine, &streams), [begin + one, begin + 2 * one, BEGIN + 100_000]);
}

#[test]
fn preempted_kernel_continues_where_it_was() {
    let (mut engine, long) = context();
    let owner = engine.account_mut().open(2, "");
    engine.account_mut().name(owner, "k");
    let short = engine.add_group(owner, params::TIMESLICE_NS);
    let streams = [long, short].map(|group| engine.add_stream(group, StreamKind::NonBlocking, 0, 0));
    engine.submit(streams[0], 0, kernel(10_000, 132)).unwrap();
    engine.submit(streams[1], 1_000_000, kernel(100, 132)).unwrap();
    let off = BEGIN + params::TIMESLICE_NS;
    let short_done = off + params::PREEMPT_NS + 100_000;
    let long_done = short_done + params::IDLE_SWITCH_NS + (10_000_000 - params::TIMESLICE_NS);
    assert_eq!(times(&mut engine, &streams), [long_done, short_done]);
}

#[test]
fn event_before_a_kernel_is_recorded_when_its_context_has_the_gpu() {
    let (mut engine, busy) = context();
    let owner = engine.account_mut().open(2, "");
    engine.account_mut().name(owner, "k");
    let requests = engine.add_group(owner, params::TIMESLICE_NS);
    let streams = [busy, requests].map(|group| engine.add_stream(group, StreamKind::NonBlocking, 0, 0));
    engine.submit(streams[0], 0, kernel(10_000, 132)).unwrap();
    let at = 1_000_000;
    engine.submit(streams[1], at, Command::Record { tag: 1 }).unwrap();
    engine.submit(streams[1], at, kernel(100, 132)).unwrap();
    engine.submit(streams[1], at, Command::Record { tag: 2 }).unwrap();
    engine.advance(10_000_000);
    let records = engine.take_records();
    assert_eq!(records.iter().map(|record| record.tag).collect::<Vec<_>>(), [1, 2]);
    let begun = BEGIN + params::TIMESLICE_NS + params::PREEMPT_NS;
    assert!((begun..begun + 10).contains(&records[0].at_ns), "{}", records[0].at_ns);
    assert_eq!(records[1].at_ns - records[0].at_ns, 100_000);
}

#[test]
fn busy_context_continues_after_a_request_as_late_as_measured() {
    let (mut engine, busy) = context();
    let owner = engine.account_mut().open(2, "");
    engine.account_mut().name(owner, "k");
    let requests = engine.add_group(owner, params::TIMESLICE_NS);
    let streams = [busy, requests].map(|group| engine.add_stream(group, StreamKind::NonBlocking, 0, 0));
    engine.submit(streams[0], 0, kernel(10_000, 132)).unwrap();
    engine.submit(streams[1], 1_000_000, kernel(100, 132)).unwrap();
    let [ended, _] = times(&mut engine, &streams)[..] else { panic!("two streams") };
    let cost = ended - BEGIN - 10_000_000 - 100_000;
    assert!((355_000..=373_000).contains(&cost), "docs/reference/gpu.md section 2: {cost}");
}

#[test]
fn host_command_stops_its_stream_until_the_function_has_returned() {
    let (mut engine, group) = context();
    let stream = engine.add_stream(group, StreamKind::NonBlocking, 0, 0);
    let held = engine.submit(stream, 0, Command::Host).unwrap();
    let after = engine.submit(stream, 0, kernel(100, 1)).unwrap();
    engine.advance(1_000_000);
    assert_eq!((engine.completed(stream), engine.next_event()), (Some(held - 1), None));
    engine.host_done(stream, held);
    engine.advance(2_000_000);
    assert_eq!(engine.completed(stream), Some(after));
}

#[test]
fn removed_context_stops_no_stream() {
    let (mut engine, group) = context();
    let gone = engine.add_stream(group, StreamKind::NonBlocking, 0, 0);
    let seq = engine.submit(gone, 0, kernel(1_000_000, 132)).unwrap();
    let owner = engine.account_mut().open(2, "");
    engine.account_mut().name(owner, "k");
    let other = engine.add_group(owner, params::TIMESLICE_NS);
    let waits = engine.add_stream(other, StreamKind::NonBlocking, 0, 0);
    engine.submit(waits, 0, Command::Wait { stream: gone, seq }).unwrap();
    engine.submit(waits, 0, kernel(100, 132)).unwrap();
    engine.advance(1_000_000);
    engine.remove_group(group);
    let removed = 1_000_000 + params::LOAD_NS;
    assert_eq!(times(&mut engine, &[waits]), [removed + 100_000]);
    assert_eq!(engine.submit(gone, 0, kernel(1, 1)), None);
}

#[test]
fn full_timeline_forgets_only_the_oldest_intervals() {
    let (mut engine, group) = context();
    let stream = engine.add_stream(group, StreamKind::NonBlocking, 0, 0);
    let period = 10_000;
    let kernels = params::TIMELINE_INTERVALS as u64 + 10;
    for index in 0..kernels {
        engine.submit(stream, 1_000_000 + index * period, kernel(2, 1)).unwrap();
        engine.advance(1_000_000 + index * period);
    }
    engine.advance(u64::MAX / 2);
    let timeline = engine.account().timeline(0, u64::MAX);
    assert_eq!(timeline.len(), params::TIMELINE_INTERVALS);
    assert_eq!(engine.account().ledger().gpu.busy_ns, kernels * 2_000);
}

#[test]
fn waiting_time_counts_while_other_contexts_have_the_gpu() {
    let (mut engine, first) = context();
    let owner = engine.account_mut().open(2, "");
    engine.account_mut().name(owner, "k");
    let second = engine.add_group(owner, params::TIMESLICE_NS);
    let streams = [first, second].map(|group| engine.add_stream(group, StreamKind::NonBlocking, 0, 0));
    for stream in streams {
        engine.submit(stream, 0, kernel(100, 132)).unwrap();
    }
    let done = times(&mut engine, &streams);
    let waited: Vec<u64> = engine.ledger().processes.iter().map(|row| row.waited_ns).collect();
    // Both kernels reach the GPU at SUBMIT_NS; until it is completed, each waits or runs.
    assert_eq!(waited, [done[0], done[1]].map(|at| at - params::SUBMIT_NS - 100_000));
    assert!(waited[1] >= 100_000, "{waited:?}");
    // A context without work does not wait.
    engine.submit(streams[0], 0, kernel(100, 132)).unwrap();
    let before = engine.ledger().processes[1].waited_ns;
    times(&mut engine, &streams[..1]);
    assert_eq!(engine.ledger().processes[1].waited_ns, before);
}
