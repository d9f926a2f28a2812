use proptest::prelude::*;

use super::*;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const PASSED: StepEnd = StepEnd::Passed { after_calls: true };

/// A meter, and what it has reported.
#[derive(Default)]
struct Recorder {
    meter: LatencyMeter,
    steps: Vec<u64>,
    requests: Vec<u64>,
    unobserved: u32,
}

impl Recorder {
    fn change(&mut self, change: impl FnOnce(&mut LatencyMeter, &mut dyn FnMut(Measured))) {
        let Self { meter, steps, requests, unobserved } = self;
        change(meter, &mut |measured| match measured {
            Measured::Step(ns) => steps.push(ns),
            Measured::Request(ns) => requests.push(ns),
            Measured::Unobserved => *unobserved += 1,
        });
    }

    fn launch(&mut self, thread: u32, at: u64) {
        self.change(|meter, mut report| meter.called(thread, CallKind::Work, at, &mut report));
    }

    fn copy(&mut self, thread: u32, (begun, ended): (u64, u64)) {
        self.change(|meter, mut report| meter.called(thread, CallKind::Copy, begun, &mut report));
        self.meter.waited(thread, PASSED, (begun, ended));
    }

    fn wait(&mut self, thread: u32, times: (u64, u64)) {
        self.meter.waited(thread, StepEnd::Waited, times);
    }

    fn expire(&mut self, at: u64, is_busy: bool) {
        self.change(|meter, mut report| meter.expire(at, is_busy, &mut report));
    }
}

#[test]
fn tokens_are_steps_of_one_request_and_a_longer_pause_ends_it() {
    let mut recorder = Recorder::default();
    for token in 0..3 {
        let at = 10 * MS + token * MS;
        recorder.launch(1, at);
        recorder.launch(1, at + 100 * US);
        recorder.wait(1, (at + 200 * US, at + 900 * US));
    }
    recorder.expire(12 * MS + 900 * US + REQUEST_GAP_NS - 1, false);
    assert!(recorder.requests.is_empty(), "the request may continue");
    recorder.launch(1, 20 * MS);
    assert_eq!(
        (recorder.steps.as_slice(), recorder.requests.as_slice()),
        (&[900 * US; 3][..], &[2900 * US][..])
    );
    recorder.wait(1, (20 * MS, 25 * MS));
    recorder.expire(25 * MS + REQUEST_GAP_NS, false);
    assert_eq!((recorder.steps[3], recorder.requests[1]), (5 * MS, 5 * MS));
}

#[test]
fn second_wait_after_a_step_extends_it() {
    let mut recorder = Recorder::default();
    recorder.launch(1, 10 * MS);
    recorder.wait(1, (10 * MS, 11 * MS));
    // The result is copied, which takes longer than the gap between two requests.
    recorder.wait(1, (11 * MS + 10 * US, 13 * MS));
    recorder.expire(20 * MS, false);
    assert_eq!((recorder.steps, recorder.requests), (vec![3 * MS], vec![3 * MS]));
}

#[test]
fn threads_that_serve_requests_at_once_have_steps_of_their_own() {
    let mut recorder = Recorder::default();
    recorder.launch(1, 10 * MS);
    recorder.launch(2, 12 * MS);
    recorder.wait(1, (10 * MS, 15 * MS));
    recorder.launch(1, 16 * MS);
    recorder.wait(2, (12 * MS, 18 * MS));
    recorder.wait(1, (16 * MS, 20 * MS));
    recorder.expire(30 * MS, false);
    recorder.requests.sort_unstable();
    assert_eq!(recorder.requests, [4 * MS, 5 * MS, 6 * MS]);
}

#[test]
fn wait_of_a_thread_without_a_step_ends_the_oldest_one() {
    let mut recorder = Recorder::default();
    recorder.launch(1, 10 * MS);
    recorder.launch(2, 11 * MS);
    recorder.wait(9, (10 * MS, 13 * MS));
    recorder.wait(9, (13 * MS, 15 * MS));
    recorder.expire(20 * MS, false);
    assert_eq!(recorder.requests, [3 * MS, 4 * MS]);
}

#[test]
fn synchronous_copy_begins_a_step_if_work_follows_soon_and_is_none_by_itself() {
    let mut recorder = Recorder::default();
    recorder.copy(1, (MS, 2 * MS));
    recorder.copy(1, (10 * MS, 11 * MS));
    recorder.launch(1, 11 * MS + 100 * US);
    recorder.wait(1, (11 * MS + 200 * US, 12 * MS));
    recorder.expire(20 * MS, false);
    assert_eq!((recorder.requests, recorder.unobserved), (vec![2 * MS], 0));
}

#[test]
fn finished_poll_is_the_end_only_if_nothing_follows() {
    let mut recorder = Recorder::default();
    recorder.launch(1, 10 * MS);
    recorder.meter.waited(1, PASSED, (10 * MS + 100 * US, 10 * MS + 100 * US));
    recorder.expire(11 * MS, true);
    recorder.launch(1, 10 * MS + 200 * US);
    recorder.meter.waited(1, PASSED, (12 * MS, 12 * MS));
    recorder.meter.waited(
        1,
        StepEnd::Passed { after_calls: false },
        (12 * MS + 300 * US, 12 * MS + 300 * US),
    );
    recorder.expire(12 * MS + REQUEST_GAP_NS, false);
    assert_eq!((recorder.steps, recorder.requests), (vec![2 * MS], vec![2 * MS]));
}

#[test]
fn step_continues_over_a_pause_of_the_program() {
    let mut recorder = Recorder::default();
    recorder.launch(1, 10 * MS);
    recorder.meter.found_idle(12 * MS);
    recorder.expire(50 * MS, false);
    recorder.launch(1, 60 * MS);
    recorder.wait(1, (60 * MS, 61 * MS));
    recorder.expire(70 * MS, false);
    assert_eq!((recorder.requests, recorder.unobserved), (vec![51 * MS], 0));
}

#[test]
fn step_that_nobody_waits_for_is_counted_without_a_latency() {
    let mut recorder = Recorder::default();
    recorder.launch(1, 10 * MS);
    recorder.meter.found_idle(12 * MS);
    recorder.expire(12 * MS + UNAWAITED_NS, false);
    recorder.launch(1, 200 * MS);
    recorder.wait(1, (200 * MS, 201 * MS));
    recorder.launch(1, 300 * MS);
    recorder.change(|meter, mut report| meter.interrupt(&mut report));
    assert_eq!((recorder.requests, recorder.unobserved), (vec![MS], 2));
}

#[test]
fn more_threads_than_are_measured_are_counted_and_disturb_no_other() {
    let mut recorder = Recorder::default();
    let last = u32::try_from(THREADS).expect("few") + 1;
    (1..=last).for_each(|thread| recorder.launch(thread, u64::from(thread) * MS));
    assert_eq!(recorder.unobserved, 1);
    (1..last).for_each(|thread| recorder.wait(thread, (20 * MS, 30 * MS)));
    recorder.expire(40 * MS, false);
    assert_eq!(recorder.requests.len(), THREADS);
    recorder.launch(last, 50 * MS);
    assert_eq!(recorder.unobserved, 1, "the others are over");
}

proptest! {
    /// A request lasts as long as its steps and the gaps between them, and no time counts twice.
    #[test]
    fn requests_cover_their_steps(
        steps in proptest::collection::vec((1u64..5 * MS, 1u64..4 * MS, 0usize..4), 1..60),
    ) {
        let mut recorder = Recorder::default();
        let (mut now, mut requests, mut current) = (MS, Vec::new(), None::<(u64, u64)>);
        for (lasts, gap, launches) in &steps {
            for launch in 0..=*launches {
                recorder.launch(1, now + lasts * launch as u64 / 5);
            }
            recorder.wait(1, (now + lasts * 4 / 5, now + lasts));
            let began = current.map_or(now, |(began, _)| began);
            current = Some((began, now + lasts));
            if *gap >= REQUEST_GAP_NS {
                requests.extend(current.take().map(|(began, ended)| ended - began));
            }
            now += lasts + gap;
        }
        requests.extend(current.map(|(began, ended)| ended - began));
        recorder.expire(now + 10 * MS, false);
        prop_assert_eq!(&recorder.steps, &steps.iter().map(|(lasts, ..)| *lasts).collect::<Vec<_>>());
        prop_assert_eq!(&recorder.requests, &requests);
        prop_assert_eq!(recorder.unobserved, 0);
    }
}
