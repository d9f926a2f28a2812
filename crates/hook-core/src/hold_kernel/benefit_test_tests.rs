use super::*;

/// Lets `requests` requests go by; returns how many were held.
fn run(trial: &mut BenefitTest, requests: usize, held_ns: u64, plain_ns: u64) -> usize {
    (0..requests)
        .map(|at| {
            let held = trial.choose();
            // A hiccup now and then, on both sides.
            let hiccup = if at % 7 == 3 { 900_000 } else { 0 };
            trial.learn(held, Some(hiccup + if held { held_ns } else { plain_ns }), true);
            usize::from(held)
        })
        .sum()
}

#[test]
fn holds_that_pay_are_kept_and_few_requests_go_without() {
    let mut trial = BenefitTest::new(true);
    run(&mut trial, 100, 990_000, 1_030_000);
    let held = run(&mut trial, 10_000, 990_000, 1_030_000);
    assert!(held >= 9_970, "{held}");
}

#[test]
fn later_trials_take_a_request_now_and_then() {
    let mut trial = BenefitTest::new(true);
    run(&mut trial, 100, 990_000, 1_030_000);
    for minute in 0..100 {
        let held = run(&mut trial, 600, 990_000, 1_030_000);
        assert!(held >= 598, "{held} of 600 in minute {minute}");
    }
}

#[test]
fn holds_that_pay_no_more_end() {
    let mut trial = BenefitTest::new(true);
    run(&mut trial, 100, 990_000, 1_030_000);
    let spread = EACH * (APART as usize + 1);
    run(&mut trial, KEPT.0 as usize + spread + 4 * EACH, 1_200_000, 1_030_000);
    assert_eq!(run(&mut trial, 150, 1_200_000, 1_030_000), 0);
}

#[test]
fn holds_that_do_not_pay_end() {
    let mut trial = BenefitTest::new(true);
    run(&mut trial, 100, 1_200_000, 1_030_000);
    assert_eq!(run(&mut trial, 150, 1_200_000, 1_030_000), 0);
}

#[test]
fn what_did_not_pay_is_tried_again_and_kept_once_it_does() {
    let mut trial = BenefitTest::new(true);
    run(&mut trial, 100, 1_200_000, 1_030_000);
    run(&mut trial, 300, 900_000, 1_030_000);
    assert_eq!(run(&mut trial, 1000, 900_000, 1_030_000), 1000);
}

#[test]
fn one_trial_alone_does_not_turn_it() {
    let mut trial = BenefitTest::new(true);
    run(&mut trial, 2 * EACH, 1_200_000, 1_030_000);
    run(&mut trial, 2 * EACH, 1_000_000, 1_030_000);
    assert_eq!(run(&mut trial, 100, 1_000_000, 1_030_000), 100);
}

#[test]
fn in_doubt_it_is_the_usual_way() {
    for usually in [true, false] {
        let mut trial = BenefitTest::new(usually);
        run(&mut trial, 2 * EACH, 1_000_000, 1_000_000);
        assert_eq!(trial.choose(), usually);
    }
}

#[test]
fn while_nobody_contests_the_gpu_nothing_is_proven_against_holds() {
    let mut trial = BenefitTest::new(true);
    for _ in 0..4 * EACH {
        let held = trial.choose();
        trial.learn(held, Some(if held { 1_200_000 } else { 1_030_000 }), false);
    }
    assert!((0..100).all(|_| trial.choose()));
}

#[test]
fn requests_whose_end_nobody_sees_are_not_tried_upon_for_ever() {
    for usually in [true, false] {
        let mut trial = BenefitTest::new(usually);
        for _ in 0..UNOBSERVED {
            let held = trial.choose();
            trial.learn(held, None, true);
        }
        assert!((0..1000).all(|_| trial.choose() == usually));
    }
}
