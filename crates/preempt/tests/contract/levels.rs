//! What each level stops, and what it says.

use sluice_preempt::config::Level;
use sluice_preempt::driver::SliceError;
use sluice_preempt::engine::{OnTimeout, Request};
use sluice_preempt::ids::Kind;
use sluice_preempt::outcome::Error;
use sluice_preempt::state::State;

use crate::gpu::Effect;
use crate::rig::{Rig, SYNC};

fn busy(rig: &Rig, level: Level) -> std::sync::Arc<sluice_preempt::queue::Queue> {
    let queue = rig.queue(Kind::NonBlocking, level);
    (0..8).for_each(|tag| rig.launch(&queue, Effect::Nothing, 100_000, tag).unwrap());
    rig.gpu.advance(150_000);
    queue
}

#[test]
fn host_waits_for_all_that_is_in_the_driver() {
    let rig = Rig::new();
    let queue = busy(&rig, Level::Host);
    let achieved = rig.preempt(&queue, SYNC).unwrap();
    assert_eq!((achieved.level, achieved.stopped), (Level::Host, true));
    assert_eq!(rig.ran(&queue).len(), 8);
}

#[test]
fn device_waits_for_the_running_kernel_only() {
    let rig = Rig::new();
    let queue = busy(&rig, Level::Device);
    let achieved = rig.preempt(&queue, SYNC).unwrap();
    assert_eq!((achieved.level, achieved.stopped), (Level::Device, true));
    assert_eq!(rig.ran(&queue), [0, 1]);
    rig.gpu.finish();
    assert_eq!(rig.ran(&queue), [0, 1]);
    rig.restore(&queue);
    rig.settle();
    assert_eq!(rig.ran(&queue), (0..8).collect::<Vec<_>>());
}

#[test]
fn full_waits_for_nothing() {
    let rig = Rig::new();
    rig.gpu.inside().slices = Some(Ok(()));
    let queue = busy(&rig, Level::Full);
    let achieved = rig.preempt(&queue, SYNC).unwrap();
    assert_eq!((achieved.level, achieved.stopped, achieved.took_ns), (Level::Full, true, 0));
    rig.gpu.finish();
    assert_eq!(rig.ran(&queue), [0]);
    rig.restore(&queue);
    rig.settle();
    assert_eq!(rig.ran(&queue), (0..8).collect::<Vec<_>>());
}

#[test]
fn what_cannot_be_had_falls_back_and_says_so() {
    let rig = Rig::new();
    rig.gpu.inside().slices = Some(Err(SliceError::Unsupported("one stream of a context")));
    let queue = busy(&rig, Level::Full);
    assert_eq!(rig.preempt(&queue, SYNC).unwrap().level, Level::Device);
    let rig = Rig::new();
    rig.gpu.inside().gates = false;
    let queue = busy(&rig, Level::Full);
    assert_eq!(rig.preempt(&queue, SYNC).unwrap().level, Level::Host);
}

#[test]
fn a_control_that_fails_leaves_the_stream_running_as_before() {
    for (said, outcome) in [
        (SliceError::ContextSaveFailed, Error::ContextSaveFailed),
        (SliceError::InsufficientMemory, Error::InsufficientMemory),
        (SliceError::GpuHung, Error::GpuHung),
    ] {
        let rig = Rig::new();
        rig.gpu.inside().slices = Some(Err(said));
        let queue = busy(&rig, Level::Full);
        assert_eq!(rig.preempt(&queue, SYNC), Err(outcome));
        assert_eq!(rig.engine.state(&queue), Some(State::Running));
        rig.tag(&queue, 8);
        rig.settle();
        assert_eq!(rig.ran(&queue), (0..9).collect::<Vec<_>>());
    }
}

#[test]
fn a_preemption_that_takes_too_long_stays_pending_or_is_rolled_back_as_asked() {
    let rig = Rig::new();
    let queue = rig.queue(Kind::NonBlocking, Level::Host);
    rig.launch(&queue, Effect::Nothing, 10_000_000, 1).unwrap();
    let request = Request { timeout_ns: 1_000_000, ..SYNC };
    assert_eq!(rig.preempt(&queue, request), Err(Error::Timeout { pending: true }));
    assert_eq!(rig.engine.state(&queue), Some(State::Preempting));
    assert!(rig.preempt(&queue, SYNC).unwrap().stopped);

    rig.restore(&queue);
    rig.launch(&queue, Effect::Nothing, 10_000_000, 2).unwrap();
    let request = Request { on_timeout: OnTimeout::RollBack, ..request };
    assert_eq!(rig.preempt(&queue, request), Err(Error::Timeout { pending: false }));
    assert_eq!(rig.engine.state(&queue), Some(State::Running));

    rig.gpu.inside().hung = true;
    assert_eq!(rig.preempt(&queue, request), Err(Error::GpuHung));
    assert_eq!(rig.engine.state(&queue), Some(State::Running));
}
