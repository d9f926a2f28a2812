use super::*;
use proptest::prelude::*;

const MS: u64 = 1_000_000;

#[test]
fn bursts_close_together_count_as_one_long_burst_that_grows() {
    let mut bursts = PeriodPredictor::new(BURST_MERGE_MS, Quantile::Maximum);
    for start in [0, 5, 10] {
        bursts.record_start(start * MS);
        bursts.record_stop((start + 4) * MS);
    }
    assert_eq!(bursts.predict_single(14 * MS), 4.0);
    assert_eq!(bursts.predict_merged(14 * MS), 14.0, "the gaps of 1 ms belong to the long burst");
}

#[test]
fn a_pause_longer_than_the_threshold_starts_another_long_burst() {
    let mut bursts = PeriodPredictor::new(BURST_MERGE_MS, Quantile::Maximum);
    bursts.record_start(0);
    bursts.record_stop(4 * MS);
    bursts.record_start(7 * MS);
    bursts.record_stop(12 * MS);
    assert_eq!(bursts.predict_merged(12 * MS), 5.0);
}

#[test]
fn interrupted_period_leaves_no_record() {
    let mut windows = PeriodPredictor::new(WINDOW_MERGE_MS, Quantile::P90);
    windows.record_start(0);
    windows.interrupt();
    windows.record_stop(500 * MS);
    assert_eq!(windows.predict_single(500 * MS), 0.0);
}

#[test]
fn an_interrupt_keeps_the_records() {
    let mut bursts = PeriodPredictor::new(BURST_MERGE_MS, Quantile::P90);
    bursts.record_start(0);
    bursts.record_stop(3 * MS);
    bursts.interrupt();
    assert_eq!(bursts.predict_single(3 * MS), 3.0);
}

#[test]
fn a_full_burst_is_doubled_only_for_a_program_that_does_not_pause() {
    assert_eq!(estimate_full_burst(0.0, 0.0), 0.0);
    assert_eq!(estimate_full_burst(30.0, 1.9), 60.0);
    assert_eq!(estimate_full_burst(30.0, 2.0), 30.0);
}

/// The rules of a predictor over plain lists, without sliding windows.
#[derive(Default)]
struct Naive {
    begin: Option<u64>,
    long_begin: Option<u64>,
    long_end: Option<u64>,
    single: Vec<f64>,
    merged: Vec<f64>,
}

impl Naive {
    fn start(&mut self, now: u64) {
        if self.begin.is_none() {
            self.begin = Some(now);
            let far = match self.long_end {
                Some(end) => ((now - end) / 1000) as f64 / 1000.0 > BURST_MERGE_MS,
                None => false,
            };
            if self.long_begin.is_none() || far {
                self.long_begin = Some(now);
                self.long_end = None;
            }
        }
    }

    fn stop(&mut self, now: u64) {
        if let (Some(begin), Some(long_begin)) = (self.begin, self.long_begin) {
            self.single.push(((now - begin) / 1000) as f64 / 1000.0);
            self.merged.push(((now - long_begin) / 1000) as f64 / 1000.0);
            self.long_end = Some(now);
        }
        self.begin = None;
    }

    fn interrupt(&mut self) {
        (self.begin, self.long_begin, self.long_end) = (None, None, None);
    }
}

proptest! {
    #[test]
    fn any_sequence_of_events_gives_the_reference_predictions(
        events in proptest::collection::vec((0u8..5, 0u64..6 * MS), 1..300),
    ) {
        let mut real = PeriodPredictor::new(BURST_MERGE_MS, Quantile::Maximum);
        let mut naive = Naive::default();
        let mut now = 0;
        for (what, pause) in events {
            now += pause;
            match what {
                0 | 1 => { real.record_start(now); naive.start(now); }
                2 | 3 => { real.record_stop(now); naive.stop(now); }
                _ => { real.interrupt(); naive.interrupt(); }
            }
            let largest = |all: &[f64]| all.iter().copied().fold(0.0, f64::max);
            // 300 events of at most 6 ms stay within the window of 3 s, so nothing expires here.
            prop_assert_eq!(real.predict_single(now), largest(&naive.single));
            prop_assert_eq!(real.predict_merged(now), largest(&naive.merged));
        }
    }
}
