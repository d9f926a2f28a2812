use super::*;

const US: u64 = 1_000;

fn measured(bursts: &[(u64, u64)]) -> GpuTimeEstimate {
    let mut estimate = GpuTimeEstimate::default();
    bursts.iter().for_each(|(duration, gpu)| estimate.measured(duration * US, gpu * US));
    estimate
}

#[test]
fn without_a_measurement_the_whole_duration_counts() {
    assert_eq!(GpuTimeEstimate::default().of(700 * US), 700 * US);
}

#[test]
fn one_measurement_gives_the_part_that_is_gpu_time() {
    assert_eq!(measured(&[(500, 400)]).of(1_000 * US), 800 * US);
}

#[test]
fn bursts_with_the_same_work_have_the_same_gpu_time_whatever_the_host_delays() {
    let estimate = measured(&[(5_300, 5_200), (5_900, 5_200), (5_600, 5_200), (5_400, 5_200)]);
    for duration in [5_250, 5_600, 7_000] {
        assert_eq!(estimate.of(duration * US), 5_200 * US);
    }
    assert_eq!(estimate.of(3_000 * US), 3_000 * US, "never more than the duration");
}

#[test]
fn measured_times_that_contain_a_delay_do_not_count() {
    let delayed = [(6_231, 5_562), (6_058, 5_646)];
    let others = [(5_735, 5_199), (5_635, 5_199), (5_828, 5_199), (5_626, 5_201), (5_488, 5_200)];
    let estimate = measured(&[&delayed[..], &others[..]].concat());
    for duration in [5_400, 5_600, 6_200] {
        assert!(estimate.of(duration * US).abs_diff(5_200 * US) < 30 * US, "{}", estimate.of(duration * US));
    }
}

#[test]
fn bursts_with_different_work_are_as_much_shorter_on_the_gpu_as_the_measured_ones() {
    let estimate = measured(&[(1_100, 1_000), (4_100, 4_000), (2_100, 2_000), (3_100, 3_000)]);
    for duration in [600, 2_600, 4_600, 50_100] {
        let expected = (duration - 100) * US;
        assert!(estimate.of(duration * US).abs_diff(expected) < US, "{}", estimate.of(duration * US));
    }
}

#[test]
fn work_that_grows_counts_before_it_is_measured_and_exactly_afterwards() {
    let mut estimate = measured(&[(5_600, 5_200); 16]);
    estimate.measured(5_400 * US, 5_200 * US);
    assert!(estimate.of(50_000 * US) > 40_000 * US);
    estimate.measured(50_400 * US, 50_000 * US);
    assert!(estimate.of(50_400 * US).abs_diff(50_000 * US) < 100 * US, "{}", estimate.of(50_400 * US));
}
