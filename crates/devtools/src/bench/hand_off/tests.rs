use super::*;

fn wait(called: u64, returned: u64) -> Wait {
    Wait { called, returned }
}

#[test]
fn hand_off_lasts_from_the_refused_launch_to_the_return_of_the_launch_that_waited() {
    let first = [wait(100, 220), wait(300, 420)];
    let second = [wait(20, 107), wait(205, 350)];
    assert_eq!(hand_offs(&first, &second).collect::<Vec<_>>(), [(100, 107), (300, 350)]);
    assert_eq!(hand_offs(&second, &first).collect::<Vec<_>>(), [(205, 220)]);
}

#[test]
fn grant_to_the_same_process_again_is_no_hand_off() {
    // The first process returns its grant and receives the next one, while the second waits on.
    let first = [wait(100, 110)];
    let second = [wait(20, 300)];
    assert_eq!(hand_offs(&first, &second).count(), 0);
}

#[test]
fn each_step_counts_from_the_one_before_and_steps_of_other_hand_offs_do_not_count() {
    use sluice_comm::HandOffStep::{DrainBegun, GrantRead, ManagerPolls, Shown, TrackerPolls};
    const US: u64 = 1_000;
    let begin = 1_000_000 * US;
    let at = |step: sluice_comm::HandOffStep, us: u64| (step as u8, begin + us * US);
    let earlier = (DrainBegun as u8, begin - 50_000 * US);
    let recorded = [
        earlier,
        at(ManagerPolls, 0),
        at(DrainBegun, 5),
        at(Shown, 25),
        at(GrantRead, 26),
        at(TrackerPolls, 90),
    ];
    let mut steps = Steps::default();
    steps.add(&recorded, (begin, begin + 40 * US));
    let figures = serde_json::to_value(steps.figures()).unwrap();
    assert_eq!(figures["polled"], serde_json::json!([0.0, 1.0, 0.0]));
    let p50 =
        |step: usize| (figures["steps"][step]["step"].clone(), figures["steps"][step]["us"]["p50"].clone());
    let expected = [("DrainBegun", 5.0), ("Shown", 20.0), ("GrantRead", 1.0), ("LaunchReturned", 14.0)];
    for (index, (step, us)) in expected.into_iter().enumerate() {
        assert_eq!(p50(index), (step.into(), us.into()));
    }
    assert_eq!(figures["from_drain_us"]["p50"], 35.0);
}
