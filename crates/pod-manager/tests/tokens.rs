//! Tokens over real sockets and pages, on a clock that the test moves.

mod support;

use support::{MS, World};

#[test]
fn the_gate_is_open_until_the_deadline_when_the_answer_comes() {
    let world = World::new();
    let mut a = world.process("be-a");
    assert_eq!(a.page().deadline_ns(), 0);
    a.want();
    assert_eq!(a.granted(), 50.0);
    let deadline = world.clock.now() + 50 * MS;
    assert_eq!((a.page().deadline_ns(), a.page().deadline_tsc()), (deadline, 10 * deadline));
}

#[test]
fn the_second_client_runs_as_soon_as_the_first_gives_back() {
    let world = World::new();
    let (mut a, mut b) = (world.process("be-a"), world.process("be-b"));
    a.want();
    a.granted();
    b.want();
    world.settle();
    assert!(b.token.is_silent() && a.page().contended());
    world.clock.advance(7 * MS);
    a.give_back(7.0);
    assert_eq!(b.granted(), 50.0);
    assert_eq!(a.page().deadline_ns(), 0);
    assert!(!b.page().contended());
}
