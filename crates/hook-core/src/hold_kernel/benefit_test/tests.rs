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

/// Copies: a request by copy engine takes 1 ms, and beside a neighbour up to 1 ms longer; by a kernel 42 µs longer in any case.
struct Copying {
    test: BenefitTest,
    random: u64,
}

impl Copying {
    fn new() -> Self {
        Self { test: BenefitTest::new(Mechanism::KernelCopies), random: 1 }
    }

    /// Runs `requests` requests; returns how many copied by a kernel.
    fn run(&mut self, requests: usize, beside_neighbour: bool) -> usize {
        (0..requests)
            .map(|_| {
                self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let noise = self.random >> 50;
                let waits = if beside_neighbour { (self.random >> 33) % 1_000_000 } else { 0 };
                let by_kernel = self.test.choose();
                let lasted = 1_000_000 + noise + if by_kernel { 42_000 } else { waits };
                self.test.learn(by_kernel, Some(lasted), true);
                usize::from(by_kernel)
            })
            .sum()
    }
}

#[test]
fn kernel_copies_are_chosen_beside_a_neighbour_within_some_requests() {
    let mut copying = Copying::new();
    copying.run(4 * SAMPLES, true);
    assert_eq!(copying.run(100, true), 100);
}

#[test]
fn while_kernel_copies_gain_fewer_than_one_in_a_hundred_requests_goes_without() {
    let mut copying = Copying::new();
    copying.run(4 * SAMPLES, true);
    for block in 0..100 {
        let by_kernel = copying.run(600, true);
        assert!(by_kernel > 594, "{by_kernel} of 600 in block {block}");
    }
}

#[test]
fn without_a_neighbour_fewer_than_one_in_a_hundred_requests_is_copied_by_a_kernel() {
    let mut copying = Copying::new();
    copying.run(4 * SAMPLES, false);
    for block in 0..100 {
        let by_kernel = copying.run(600, false);
        assert!(by_kernel < 6, "{by_kernel} of 600 in block {block}");
    }
}

#[test]
fn neighbour_that_begins_to_copy_is_noticed_within_some_requests() {
    let mut copying = Copying::new();
    copying.run(2_000, false);
    // Eight slower requests in a row, one test, and some requests that were by chance not much slower.
    copying.run(100, true);
    assert_eq!(copying.run(100, true), 100);
}

#[test]
fn copy_engines_return_when_the_neighbour_has_gone() {
    let mut copying = Copying::new();
    copying.run(500, true);
    copying.run(2 * CONTRARY_VALID_REQUESTS as usize + SAMPLES * (SAMPLE_SPACING as usize + 1), false);
    assert!(copying.run(1_000, false) < 10);
}

#[test]
fn load_that_changes_all_the_time_is_not_tested_all_the_time() {
    let mut copying = Copying::new();
    copying.run(4 * SAMPLES, false);
    // Requests are slower for a while, and a kernel does not help.
    let slow = |copying: &mut Copying, ns: u64| {
        let by_kernel = copying.test.choose();
        copying.test.learn(by_kernel, Some(ns + if by_kernel { 42_000 } else { 0 }), true);
        usize::from(by_kernel)
    };
    let by_kernel: usize = (0..20_000).map(|at| slow(&mut copying, 1_000_000 << (at / 20 % 2))).sum();
    assert!(by_kernel < 400, "{by_kernel} of 20000");
}
