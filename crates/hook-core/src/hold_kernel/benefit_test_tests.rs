use super::*;

/// Lets `requests` requests go by; returns how many were held.
fn run(test: &mut BenefitTest, requests: usize, held_ns: u64, plain_ns: u64) -> usize {
    (0..requests)
        .map(|at| {
            let held = test.choose();
            // A delay now and then, on both sides.
            let delay = if at % 7 == 3 { 900_000 } else { 0 };
            test.learn(held, Some(delay + if held { held_ns } else { plain_ns }), true);
            usize::from(held)
        })
        .sum()
}

#[test]
fn holds_that_pay_are_kept_and_few_requests_go_without() {
    let mut test = BenefitTest::new(true);
    run(&mut test, 100, 990_000, 1_030_000);
    let held = run(&mut test, 10_000, 990_000, 1_030_000);
    assert!(held >= 9_970, "{held}");
}

#[test]
fn later_trials_take_a_request_now_and_then() {
    let mut test = BenefitTest::new(true);
    run(&mut test, 100, 990_000, 1_030_000);
    for minute in 0..100 {
        let held = run(&mut test, 600, 990_000, 1_030_000);
        assert!(held >= 598, "{held} of 600 in minute {minute}");
    }
}

#[test]
fn holds_that_pay_no_more_end() {
    let mut test = BenefitTest::new(true);
    run(&mut test, 100, 990_000, 1_030_000);
    let spread = SAMPLES * (SAMPLE_SPACING as usize + 1);
    run(&mut test, VALID_REQUESTS.0 as usize + spread + 4 * SAMPLES, 1_200_000, 1_030_000);
    assert_eq!(run(&mut test, 150, 1_200_000, 1_030_000), 0);
}

#[test]
fn holds_that_do_not_pay_end() {
    let mut test = BenefitTest::new(true);
    run(&mut test, 100, 1_200_000, 1_030_000);
    assert_eq!(run(&mut test, 150, 1_200_000, 1_030_000), 0);
}

#[test]
fn what_did_not_pay_is_tried_again_and_kept_once_it_does() {
    let mut test = BenefitTest::new(true);
    run(&mut test, 100, 1_200_000, 1_030_000);
    run(&mut test, 300, 900_000, 1_030_000);
    assert_eq!(run(&mut test, 1000, 900_000, 1_030_000), 1000);
}

#[test]
fn one_trial_alone_does_not_turn_it() {
    let mut test = BenefitTest::new(true);
    run(&mut test, 2 * SAMPLES, 1_200_000, 1_030_000);
    run(&mut test, 2 * SAMPLES, 1_000_000, 1_030_000);
    assert_eq!(run(&mut test, 100, 1_000_000, 1_030_000), 100);
}

#[test]
fn in_doubt_it_is_the_usual_way() {
    for default in [true, false] {
        let mut test = BenefitTest::new(default);
        run(&mut test, 2 * SAMPLES, 1_000_000, 1_000_000);
        assert_eq!(test.choose(), default);
    }
}

#[test]
fn while_nobody_contests_the_gpu_nothing_is_proven_against_holds() {
    let mut test = BenefitTest::new(true);
    for _ in 0..4 * SAMPLES {
        let held = test.choose();
        test.learn(held, Some(if held { 1_200_000 } else { 1_030_000 }), false);
    }
    assert!((0..100).all(|_| test.choose()));
}

#[test]
fn requests_whose_end_nobody_sees_are_not_tried_upon_for_ever() {
    for default in [true, false] {
        let mut test = BenefitTest::new(default);
        for _ in 0..MAX_UNOBSERVED {
            let held = test.choose();
            test.learn(held, None, true);
        }
        assert!((0..1000).all(|_| test.choose() == default));
    }
}
