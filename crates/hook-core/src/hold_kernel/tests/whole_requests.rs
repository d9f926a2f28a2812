//! Requests of several bursts with short gaps.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::*;
use crate::hold_kernel::BurstEnd;

const KEEPS: u32 = 1;
const WORKING: u32 = 2;

fn words() -> HoldWords {
    HoldWords {
        activity: Box::leak(Box::default()),
        changed_ns: Box::leak(Box::<AtomicU64>::default()),
        ended: Box::leak(Box::<AtomicU64>::default()),
    }
}

/// A decoding program: each request is a copy, then tokens of a launch and a wait with a gap of 50 µs between them.
struct Decoder {
    server: Server,
    words: HoldWords,
    held: Vec<HoldPlan>,
    released: u32,
}

impl Decoder {
    fn new() -> Self {
        let mut server = Server::new();
        let words = words();
        server.state.use_words(words);
        Self { server, words, held: Vec::new(), released: 0 }
    }

    /// One that has learned to linger.
    fn settled() -> Self {
        let mut decoder = Self::new();
        for _ in 0..60 {
            decoder.request(47);
        }
        (decoder.held, decoder.released) = (Vec::new(), 0);
        decoder
    }

    fn call(&mut self, trigger: Trigger) {
        if let Ok(hold) = self.server.begin(trigger, 0) {
            self.server.state.use_words(self.words);
            self.held.push(hold);
        }
    }

    fn burst(&mut self, trigger: Trigger) {
        self.call(trigger);
        self.released += u32::from(self.server.launch().is_some());
        self.server.now += MS;
        self.released += u32::from(self.server.state.host_wait_begins(false).is_some());
        self.server.finish();
    }

    fn request(&mut self, tokens: u32) {
        for token in 0..tokens {
            self.burst(if token == 0 { Trigger::Copy } else { Trigger::Launch });
            self.server.now += 50 * US;
        }
        self.server.now += 100 * MS;
    }

    fn activity(&self) -> u32 {
        self.words.activity.load(Relaxed)
    }
}

#[test]
fn one_hold_kernel_spans_a_request_of_47_tokens() {
    let mut decoder = Decoder::settled();
    decoder.request(47);
    let [hold] = decoder.held.as_slice() else { panic!("{:?}", decoder.held) };
    let limits = hold.limits();
    assert!((100 * US..MS).contains(&limits.linger_ns), "a switch there and back: {limits:?}");
    assert!(limits.timeout_ns <= 2 * MS && limits.still_ns == 50 * MS && limits.longest_ns == 1_000 * MS);
    assert_eq!(decoder.released, 0, "neither a launch nor a wait releases it");
    decoder.request(47);
    assert_eq!(decoder.held.len(), 2, "the pause was longer than the linger time");
}

#[test]
fn activity_is_odd_while_work_is_out_and_changes_twice_per_burst() {
    let mut decoder = Decoder::settled();
    decoder.call(Trigger::Copy);
    // As the page is before each launch of a hold kernel.
    decoder.words.changed_ns.store(0, Relaxed);
    let before = decoder.activity();
    assert_eq!(before & (KEEPS | WORKING), 0, "the input is being copied");
    let launched = decoder.server.now;
    decoder.server.launch();
    let working = decoder.activity();
    assert_eq!(working & (KEEPS | WORKING), KEEPS | WORKING);
    decoder.server.launch();
    assert_eq!(decoder.activity(), working, "later launches store nothing");
    decoder.server.now += MS;
    decoder.server.finish();
    let idle = decoder.activity();
    assert!(idle & (KEEPS | WORKING) == 0 && idle != before);
    assert_eq!(decoder.words.changed_ns.load(Relaxed), launched);
}

#[test]
fn work_that_continues_a_request_keeps_the_process_active_between_bursts() {
    let mut decoder = Decoder::settled();
    decoder.call(Trigger::Copy);
    decoder.server.launch();
    let now = decoder.server.now;
    let until = decoder.server.state.work_finished(now, BurstEnd::Exact, 0).expect("the hold kernel stays");
    assert_eq!(until - now, decoder.held[0].limits().linger_ns);
}

#[test]
fn hold_kernel_that_ended_by_itself_is_followed_by_another_in_the_same_request() {
    let mut decoder = Decoder::settled();
    decoder.burst(Trigger::Copy);
    decoder.words.ended.store(decoder.held[0].ticket.into(), Relaxed);
    decoder.server.now += 50 * US;
    decoder.burst(Trigger::Launch);
    assert_eq!(decoder.held.len(), 2);
    decoder.server.now += 50 * US;
    decoder.burst(Trigger::Launch);
    assert_eq!(decoder.held.len(), 2);
}

#[test]
fn hold_kernel_that_was_left_to_urgent_work_is_followed_by_another_in_the_same_request() {
    let mut decoder = Decoder::settled();
    decoder.burst(Trigger::Copy);
    assert_eq!(decoder.server.state.leave_gpu(), Some(decoder.held[0].ticket));
    decoder.server.now += 50 * US;
    decoder.burst(Trigger::Launch);
    assert_eq!(decoder.held.len(), 2);
}

/// A burst of 51 ms, because its work could not start beside the hold kernel, which ends meanwhile.
fn stalled_burst(decoder: &mut Decoder, trigger: Trigger) {
    decoder.call(trigger);
    decoder.server.launch();
    decoder.server.now += 51 * MS;
    decoder.words.ended.store(decoder.held.last().expect("a hold kernel").ticket.into(), Relaxed);
    decoder.server.finish();
    decoder.server.now += 50 * US;
}

#[test]
fn request_whose_bursts_outlast_two_hold_kernels_has_no_third_and_after_four_requests_none_is_held() {
    let mut decoder = Decoder::settled();
    let mut held = Vec::new();
    for _ in 0..6 {
        let before = decoder.held.len();
        stalled_burst(&mut decoder, Trigger::Copy);
        stalled_burst(&mut decoder, Trigger::Launch);
        decoder.burst(Trigger::Launch);
        held.push(decoder.held[before..].iter().filter(|hold| hold.linger_ns.is_some()).count());
        decoder.server.now += 100 * MS;
    }
    assert_eq!(held, [2, 2, 2, 2, 0, 0]);
    let now = decoder.server.now;
    assert_eq!(decoder.server.state.begin_marked(now), Err(HoldRefusal::NotWorthIt));
}

#[test]
fn wait_for_the_whole_context_releases_the_hold_kernel_and_none_follows_in_the_request() {
    let mut decoder = Decoder::settled();
    decoder.burst(Trigger::Copy);
    assert_eq!(decoder.server.state.host_wait_begins(true), Some(decoder.held[0].ticket));
    decoder.server.now += 50 * US;
    decoder.burst(Trigger::Launch);
    assert_eq!(decoder.held.len(), 1);
}

#[test]
fn program_that_always_waits_for_its_context_does_not_linger() {
    let controller = HoldKernels::new(Settings::default());
    controller.set_contenders(1);
    controller.with(|state| state.launch_submitted(0));
    controller.work_finished(1, || 1);
    for at in 1..200 {
        let now = at * 100 * US;
        let hold = controller.with(|state| state.begin_request(Trigger::Copy, now, 0));
        assert!(hold.is_ok_and(|hold| hold.linger_ns.is_none()) || hold == Err(HoldRefusal::NotWorthIt));
        controller.with(|state| state.launch_submitted(now));
        controller.host_wait_ended(now + 50 * US, true);
        assert_eq!(controller.work_finished(now + 50 * US, || at), None);
    }
}

#[test]
fn service_of_one_launch_each_ten_ms_is_released_by_its_launch() {
    let mut server = Server::settled();
    for _ in 0..200 {
        let hold = server.request(60 * US, 1000 * US, 1100 * US);
        assert!(
            hold.is_none_or(|hold| hold.linger_ns.is_none() && hold.limits().longest_ns == hold.timeout_ns)
        );
    }
}

#[test]
fn hold_kernels_do_not_span_requests_if_that_is_switched_off() {
    let mut decoder = Decoder::new();
    decoder.server.state = HoldKernelState::new(Settings { whole_requests: false, ..Settings::default() });
    decoder.server.state.set_contenders(1);
    (0..60).for_each(|_| decoder.request(47));
    assert!(decoder.held.iter().all(|hold| hold.linger_ns.is_none()));
}

#[test]
fn samples_of_requests_with_different_lengths_are_compared_by_their_bursts() {
    let mut decoder = Decoder::settled();
    // Requests with a hold kernel are ten times as long, and each of their bursts is shorter.
    for _ in 0..40 {
        let (held, began) = (decoder.held.len(), decoder.server.now);
        decoder.call(Trigger::Copy);
        let is_held = decoder.held.len() > held;
        let lasts = if is_held { 1000 * US } else { 1300 * US };
        for token in 0..(if is_held { 100 } else { 10 }) {
            if token > 0 {
                decoder.call(Trigger::Launch);
            }
            decoder.server.launch();
            decoder.server.now += lasts;
            decoder.server.finish();
            decoder.server.now += 50 * US;
        }
        assert!(decoder.server.now > began);
        decoder.server.now += 100 * MS;
    }
    let held = decoder.held.len();
    (0..50).for_each(|_| decoder.request(3));
    assert_eq!(decoder.held.len() - held, 50, "hold kernels pay");
}

#[test]
fn marked_request_is_held_from_its_begin_to_its_end_whatever_its_gaps() {
    let mut decoder = Decoder::new();
    let hold = decoder.server.state.begin_marked(decoder.server.now).expect("idle, with contenders");
    decoder.server.state.use_words(decoder.words);
    assert_eq!(hold.limits().timeout_ns, 50 * MS);
    let mut seen = vec![decoder.activity()];
    for _ in 0..5 {
        decoder.server.now += 20 * MS;
        decoder.burst(Trigger::Launch);
        seen.push(decoder.activity());
        assert_eq!(decoder.server.state.begin_marked(decoder.server.now), Err(HoldRefusal::AlreadyBegun));
    }
    assert!(seen.iter().all(|activity| activity & KEEPS != 0), "{seen:?}");
    assert!(seen.windows(2).all(|pair| pair[0] != pair[1]), "each burst is a change");
    assert!(decoder.held.is_empty() && decoder.released == 0);
    assert_eq!(decoder.server.state.end_marked(decoder.server.now), Some(hold.ticket));
    assert_eq!(decoder.server.state.end_marked(decoder.server.now), None, "ended already");
    decoder.server.now += 20 * MS;
    decoder.burst(Trigger::Copy);
    assert_eq!(decoder.held.len(), 1, "later requests are held as before");
}

#[test]
fn marked_request_that_ends_while_work_is_out_is_released_with_the_work() {
    let mut decoder = Decoder::new();
    decoder.server.state.begin_marked(decoder.server.now).expect("idle, with contenders");
    decoder.server.state.use_words(decoder.words);
    decoder.server.launch();
    assert_eq!(decoder.server.state.end_marked(decoder.server.now), None);
    assert_eq!(decoder.activity() & (KEEPS | WORKING), KEEPS | WORKING);
    decoder.server.finish();
    assert_eq!(decoder.activity() & (KEEPS | WORKING), 0);
    assert!(!decoder.server.state.is_active());
}

#[test]
fn marked_request_without_an_end_is_over_when_nothing_happens() {
    for with_work in [false, true] {
        let mut decoder = Decoder::new();
        decoder.server.state.begin_marked(decoder.server.now).expect("idle, with contenders");
        if with_work {
            decoder.server.now += MS;
            decoder.burst(Trigger::Launch);
        }
        decoder.server.now += 51 * MS;
        decoder.burst(Trigger::Copy);
        assert_eq!(decoder.held.len(), 1, "another request, with a hold kernel of its own");
        assert_eq!(decoder.held[0].linger_ns, None, "which is not marked");
    }
}

#[test]
fn marked_requests_need_permission_and_contenders() {
    let mut state = HoldKernelState::new(Settings::default());
    assert_eq!(state.begin_marked(1), Err(HoldRefusal::NoContenders));
    let mut state = HoldKernelState::new(Settings { by_hint: false, ..Settings::default() });
    state.set_contenders(1);
    assert_eq!(state.begin_marked(1), Err(HoldRefusal::Disabled));
}

#[test]
fn announcement_within_the_linger_time_begins_another_request() {
    let mut decoder = Decoder::settled();
    decoder.burst(Trigger::Copy);
    assert_eq!(decoder.server.state.end_between_bursts(), Some(decoder.held[0].ticket));
    assert!(decoder.server.begin(Trigger::Hint, 300 * US).is_ok());
}

#[test]
fn abandoned_controller_changes_no_page() {
    let controller = HoldKernels::new(Settings::default());
    let words = words();
    controller.set_contenders(1);
    controller.with(|state| state.use_words(words));
    controller.with(|state| state.begin_marked(1)).expect("allowed");
    let before = words.activity.load(Relaxed);
    controller.abandon();
    controller.work_finished(9, || 1);
    assert!(!controller.continue_request(Trigger::Launch, 10));
    assert_eq!(words.activity.load(Relaxed), before);
}
