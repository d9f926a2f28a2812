use super::*;

const KERNEL: Work = Work::Kernel(1);

#[test]
fn first_measurement_is_taken_over_and_later_ones_by_half() {
    let mut estimates = Estimates::default();
    estimates.learn(&[(KERNEL, 4)], 40_000);
    assert_eq!(estimates.of(KERNEL), 10_000);
    estimates.learn(&[(KERNEL, 4)], 80_000);
    assert_eq!(estimates.of(KERNEL), 15_000);
}

#[test]
fn pauses_of_the_program_are_forgotten_with_first_batch_without_pause() {
    let mut estimates = Estimates::default();
    estimates.learn(&[(KERNEL, 8), (Work::Small, 1)], 82_000);
    (0..3).for_each(|_| estimates.learn(&[(KERNEL, 8)], 1_000_000_000));
    assert!(estimates.of(KERNEL) <= 82_000, "{}", estimates.of(KERNEL));
    estimates.learn(&[(KERNEL, 8)], 80_000);
    assert_eq!(estimates.of(KERNEL), 10_000);
}

#[test]
fn estimates_of_kinds_in_mixed_batches_converge() {
    let mut estimates = Estimates::default();
    let (long, short) = (Work::Kernel(1), Work::Kernel(2));
    for _ in 0..40 {
        estimates.learn(&[(long, 1), (short, 3)], 1_000_000 + 3 * 10_000);
        estimates.learn(&[(long, 2), (short, 1)], 2_000_000 + 10_000);
        estimates.learn(&[(short, 8)], 80_000);
    }
    let error = estimates.of(long).abs_diff(1_000_000);
    assert!(error < 50_000, "estimated duration {}", estimates.of(long));
    assert!(estimates.of(short).abs_diff(10_000) < 2_000, "estimated duration {}", estimates.of(short));
}
