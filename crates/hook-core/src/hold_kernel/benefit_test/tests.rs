use super::*;

const HOLDS: Mechanism = Mechanism::HoldKernels { default: true };

/// Runs `requests` requests; returns how many had a hold kernel.
fn run(test: &mut BenefitTest, requests: usize, with_ns: u64, without_ns: u64) -> usize {
    (0..requests)
        .map(|at| {
            let with_hold = test.choose();
            // A delay now and then, with and without a hold kernel.
            let delay = if at % 7 == 3 { 900_000 } else { 0 };
            test.learn(with_hold, Some(delay + if with_hold { with_ns } else { without_ns }), true);
            usize::from(with_hold)
        })
        .sum()
}

#[test]
fn beneficial_hold_kernels_are_kept_and_few_requests_go_without() {
    let mut test = BenefitTest::new(HOLDS);
    run(&mut test, 100, 990_000, 1_030_000);
    let with_hold = run(&mut test, 10_000, 990_000, 1_030_000);
    assert!(with_hold >= 9_970, "{with_hold}");
}

#[test]
fn later_tests_space_their_samples() {
    let mut test = BenefitTest::new(HOLDS);
    run(&mut test, 100, 990_000, 1_030_000);
    for minute in 0..100 {
        let with_hold = run(&mut test, 600, 990_000, 1_030_000);
        assert!(with_hold >= 598, "{with_hold} of 600 in minute {minute}");
    }
}

#[test]
fn hold_kernels_end_when_they_stop_being_beneficial() {
    let mut test = BenefitTest::new(HOLDS);
    run(&mut test, 100, 990_000, 1_030_000);
    let spread = SAMPLES * (SAMPLE_SPACING as usize + 1);
    run(&mut test, VALID_REQUESTS.0 as usize + spread + 4 * SAMPLES, 1_200_000, 1_030_000);
    assert_eq!(run(&mut test, 150, 1_200_000, 1_030_000), 0);
}

#[test]
fn hold_kernels_without_benefit_end() {
    let mut test = BenefitTest::new(HOLDS);
    run(&mut test, 100, 1_200_000, 1_030_000);
    assert_eq!(run(&mut test, 150, 1_200_000, 1_030_000), 0);
}

#[test]
fn hold_kernels_are_retried_and_kept_once_beneficial() {
    let mut test = BenefitTest::new(HOLDS);
    run(&mut test, 100, 1_200_000, 1_030_000);
    run(&mut test, 300, 900_000, 1_030_000);
    assert_eq!(run(&mut test, 1000, 900_000, 1_030_000), 1000);
}

#[test]
fn one_test_does_not_reverse_the_choice() {
    let mut test = BenefitTest::new(HOLDS);
    run(&mut test, 2 * SAMPLES, 1_200_000, 1_030_000);
    run(&mut test, 2 * SAMPLES, 1_000_000, 1_030_000);
    assert_eq!(run(&mut test, 100, 1_000_000, 1_030_000), 100);
}

#[test]
fn equal_times_give_the_default() {
    for default in [true, false] {
        let mut test = BenefitTest::new(Mechanism::HoldKernels { default });
        run(&mut test, 2 * SAMPLES, 1_000_000, 1_000_000);
        assert_eq!(test.choose(), default);
    }
}

#[test]
fn times_without_contention_do_not_end_hold_kernels() {
    let mut test = BenefitTest::new(HOLDS);
    for _ in 0..4 * SAMPLES {
        let with_hold = test.choose();
        test.learn(with_hold, Some(if with_hold { 1_200_000 } else { 1_030_000 }), false);
    }
    assert!((0..100).all(|_| test.choose()));
}

#[test]
fn unobserved_requests_end_the_test_with_the_default() {
    for default in [true, false] {
        let mut test = BenefitTest::new(Mechanism::HoldKernels { default });
        for _ in 0..MAX_UNOBSERVED {
            let with_hold = test.choose();
            test.learn(with_hold, None, true);
        }
        assert!((0..1000).all(|_| test.choose() == default));
    }
}
