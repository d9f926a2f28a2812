use super::*;

#[test]
fn pause_is_the_interval_or_ten_times_the_reading() {
    let (interval, second) = (Duration::from_secs(5), Duration::from_secs(1));
    assert_eq!(pause(interval, second / 10), interval);
    assert_eq!(pause(interval, second * 2), second * 20);
}
