use super::*;

#[track_caller]
fn check_gates(tried: anyhow::Result<Result<Gates, String>>, findings: &[(CheckStatus, &str)]) {
    let (proven, found) = of_gates(tried);
    assert!(proven.is_err());
    assert_eq!(found.len(), findings.len(), "{found:?}");
    for (found, (status, text)) in found.iter().zip(findings) {
        assert_eq!(found.status, *status, "{found:?}");
        assert!(found.found.contains(text), "{found:?}");
    }
}

#[test]
fn a_test_without_an_answer_is_inconclusive_and_no_refusal() {
    check_gates(
        Err(anyhow::anyhow!("gate does not answer")),
        &[(CheckStatus::Inconclusive, "does not answer")],
    );
    check_gates(Ok(Err("cuCtxCreate: 46".into())), &[(CheckStatus::Broken, "no context: cuCtxCreate: 46")]);
}

#[test]
fn a_stuck_stream_is_reported_and_the_next_test_is_skipped() {
    let gates = Gates { writable: StreamGateResult::NotReleased, read_only: None };
    check_gates(
        Ok(Ok(gates)),
        &[(CheckStatus::Degraded, "did not resume"), (CheckStatus::Skipped, "still stuck")],
    );
}
