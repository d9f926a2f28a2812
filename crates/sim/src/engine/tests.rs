//! The engine stepped by hand.

use super::*;

fn kernel(us: u64, sms: u32) -> Command {
    Command::Work(Work::Kernel { ns: us * 1_000, sms, name: 0 })
}

struct Tenant {
    owner: OwnerId,
    group: GroupId,
    stream: StreamId,
}

fn tenant(engine: &mut Engine, pid: i32, slice_us: u64) -> Tenant {
    let owner = engine.account_mut().open(pid, "");
    engine.account_mut().name(owner, "k");
    let group = engine.add_group(owner, slice_us * 1_000);
    let stream = engine.add_stream(group, StreamKind::NonBlocking, 0, 0);
    Tenant { owner, group, stream }
}

#[test]
fn a_kernel_begins_after_its_submission_and_lasts_its_duration() {
    let mut engine = Engine::new(1 << 30, 1_000);
    let a = tenant(&mut engine, 1, 2_048);
    let seq = engine.submit(a.stream, 5_000, kernel(100, 132)).unwrap();
    engine.advance(1_000_000);
    assert_eq!(engine.completed(a.stream), Some(seq));
    let begin = 5_000 + params::SUBMIT_NS + params::LOAD_NS;
    let timeline = engine.account().timeline(0, 1_000_000);
    assert_eq!((timeline.len(), timeline[0].start_ns, timeline[0].end_ns), (1, begin, begin + 100_000));
    let _ = (a.owner, a.group);
}
