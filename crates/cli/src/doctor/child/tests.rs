use super::*;

#[test]
fn beside_a_stuck_stream_no_other_gate_is_tested() {
    use StreamGateResult::{DoesNotWait, NotReleased, Works};
    assert_eq!(Gates::tried(|| Works, || DoesNotWait).read_only, Some(DoesNotWait));
    let stuck = Gates::tried(|| NotReleased, || panic!("it might hang"));
    assert_eq!(stuck, Gates { writable: NotReleased, read_only: None });
}
