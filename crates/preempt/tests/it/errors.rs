//! Errors that the driver returns for deferred commands, and the call that returns them to the program.

use sluice_preempt::command::{Command, Launch};
use sluice_preempt::config::PreemptionLevel;
use sluice_preempt::ids::Code;
use sluice_preempt::outcome::Notice;

use crate::fake_gpu::{Effect, REFUSED};
use crate::rig::{NON_BLOCKING, SYNC, TestRig};

const TOO_MANY_RESOURCES: Code = Code(701);

fn refused() -> Command {
    Command::Launch(Launch { function: REFUSED, parameters: [0; 40].into(), ..Launch::default() })
}

#[test]
fn refused_launch_is_returned_by_the_call_while_the_stream_runs() {
    let rig = TestRig::new();
    let queue = rig.queue(NON_BLOCKING, PreemptionLevel::Host);
    assert_eq!(rig.command(&queue, &refused()), Err(TOO_MANY_RESOURCES));
    rig.launch_tagged(&queue, 1);
    rig.run_to_completion();
    assert_eq!((rig.executed(&queue), rig.engine.synchronize_stream(&queue)), (vec![1], Ok(())));
}

#[test]
fn refused_deferred_launch_is_returned_once_and_the_rest_still_runs() {
    let rig = TestRig::new();
    let queue = rig.queue(NON_BLOCKING, PreemptionLevel::Host);
    rig.preempt(&queue, SYNC).unwrap();
    rig.launch_tagged(&queue, 1);
    assert_eq!(rig.command(&queue, &refused()), Ok(()));
    rig.launch_tagged(&queue, 2);
    rig.restore(&queue);
    rig.run_to_completion();
    assert_eq!(rig.executed(&queue), [1, 2]);
    assert_eq!(rig.observer.all(), [Notice::DeferredCommandFailed(queue.id(), TOO_MANY_RESOURCES)]);
    assert_eq!(rig.launch(&queue, Effect::Nothing, 1, 3), Err(TOO_MANY_RESOURCES));
    assert_eq!(rig.launch(&queue, Effect::Nothing, 1, 4), Ok(()));
    assert_eq!(rig.engine.synchronize_stream(&queue), Ok(()));
}

#[test]
fn each_call_that_may_return_a_deferred_error_returns_it() {
    let rig = TestRig::new();
    let queue = rig.queue(NON_BLOCKING, PreemptionLevel::Host);
    type Call = fn(&TestRig, &sluice_preempt::queue::Queue) -> Result<(), Code>;
    let calls: [Call; 3] = [
        |rig, queue| rig.engine.query_stream(queue),
        |rig, queue| rig.engine.synchronize_stream(queue),
        |rig, queue| rig.engine.flush_context(queue.stream().context),
    ];
    for call in calls {
        rig.preempt(&queue, SYNC).unwrap();
        rig.command(&queue, &refused()).unwrap();
        rig.restore(&queue);
        rig.run_to_completion();
        assert_eq!(call(&rig, &queue), Err(TOO_MANY_RESOURCES));
        assert_eq!(call(&rig, &queue), Ok(()));
    }
}

#[test]
fn lost_context_is_returned_by_every_later_call_and_nothing_hangs() {
    let rig = TestRig::new();
    let queue = rig.queue(NON_BLOCKING, PreemptionLevel::Device);
    rig.preempt(&queue, SYNC).unwrap();
    rig.launch(&queue, Effect::Fault, 1000, 1).unwrap();
    rig.restore(&queue);
    rig.run_to_completion();
    rig.preempt(&queue, SYNC).unwrap();
    for tag in 2..200 {
        assert_eq!(rig.launch(&queue, Effect::Nothing, 1000, tag), Err(Code::ILLEGAL_ADDRESS));
    }
    rig.restore(&queue);
    rig.run_to_completion();
    for _ in 0..2 {
        assert_eq!(rig.engine.synchronize_stream(&queue), Err(Code::ILLEGAL_ADDRESS));
        assert_eq!(rig.engine.query_stream(&queue), Err(Code::ILLEGAL_ADDRESS));
        assert_eq!(rig.launch(&queue, Effect::Nothing, 1, 3), Err(Code::ILLEGAL_ADDRESS));
    }
    assert_eq!(rig.engine.pending_commands(&queue), 0);
    rig.engine.disable(&queue).unwrap();
}
