use super::*;

#[track_caller]
fn check_gate(
    tried: anyhow::Result<Result<StreamGateResult, String>>,
    (status, text, next): (CheckStatus, &str, &str),
) {
    let (proven, found) = of_gate(tried);
    assert!(proven.is_err());
    assert_eq!((found.status, found.next.as_deref()), (status, Some(next)), "{found:?}");
    assert!(found.found.contains(text), "{found:?}");
}

#[test]
fn a_test_without_an_answer_is_inconclusive_and_no_refusal() {
    let inconclusive = (CheckStatus::Inconclusive, "does not answer", AGAIN);
    check_gate(Err(anyhow::anyhow!("gate does not answer")), inconclusive);
    check_gate(
        Ok(Err("cuCtxCreate: 46".into())),
        (CheckStatus::Broken, "no context: cuCtxCreate: 46", DRIVER),
    );
}

#[test]
fn a_stuck_stream_is_to_be_reported_and_a_refusal_is_for_the_driver() {
    let stuck = Ok(Ok(StreamGateResult::NotReleased));
    check_gate(stuck, (CheckStatus::Degraded, "did not resume", REPORT_IT));
    let refused = Ok(Ok(StreamGateResult::Refused { why: "cuStreamWaitValue32: 801".into() }));
    check_gate(refused, (CheckStatus::Degraded, "801", MEMORY_OPS));
}
