//! Ranks of a tensor-parallel service, each with hold kernels of its own. A token ends when all ranks have computed it, so one that waits for
//! a context switch delays all of them.

use std::sync::atomic::AtomicU64;

use super::*;

const TOKENS: u64 = 32;
/// How often requests come.
const INTERVAL: u64 = 80 * MS;
/// The requests between two pauses of the service.
const BETWEEN_PAUSES: u64 = 88;
/// Requests until the service has learned, and its first benefit tests are over.
const LEARNED: u64 = 44;

/// A rank whose requests begin with a launch.
struct Rank {
    server: Server,
    words: HoldWords,
    planned: Option<HoldPlan>,
    /// Its context can be held. A thread prepares that from the first request on.
    is_ready: bool,
}

impl Rank {
    fn new() -> Self {
        let words = HoldWords {
            activity: Box::leak(Box::default()),
            changed_ns: Box::leak(Box::<AtomicU64>::default()),
            ended: Box::leak(Box::<AtomicU64>::default()),
        };
        let mut server = Server::new();
        server.state.use_words(words);
        Self { server, words, planned: None, is_ready: false }
    }

    /// Until its next request comes: a hold kernel that was planned is launched.
    fn wait_until(&mut self, begins: u64) {
        let due = self.planned.take().filter(|hold| hold.starts_ns < begins);
        if due.is_some_and(|hold| self.server.state.take_due(hold.ticket)) {
            self.server.state.use_words(self.words);
        }
        self.server.now = begins;
    }

    /// Launches a token. Returns whether a hold kernel lasts until the next one.
    fn launch(&mut self) -> bool {
        let (state, now) = (&mut self.server.state, self.server.now);
        let continues = state.continue_request(Trigger::Launch, now);
        if self.is_ready
            && !continues
            && (state.is_armed() || !state.request_arrived(now))
            && state.begin_request(Trigger::Launch, now, 0).is_ok()
        {
            state.use_words(self.words);
        }
        self.server.launch();
        self.planned = self.server.state.predict_next(now).or(self.planned);
        self.server.state.is_released_by_request()
    }
}

/// Tensor-parallel requests, of which each first call comes to a rank a millisecond late with a probability of `late` in a hundred.
/// `interval` returns the time before a request, given its number and a
/// random part of [`INTERVAL`]. Returns which requests had a token for which some rank had no hold kernel.
fn slow_requests(ranks: u64, requests: u64, late: u64, interval: impl Fn(u64, u64) -> u64) -> Vec<u64> {
    let mut seed = 1_u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    let mut gang: Vec<Rank> = (0..ranks).map(|_| Rank::new()).collect();
    let (mut slow, mut begins) = (Vec::new(), 2_000 * MS);
    for request in 0..requests {
        begins += interval(request, random(INTERVAL));
        for (rank, number) in gang.iter_mut().zip(0..) {
            let late_ns = if random(100) < late { MS } else { 0 };
            rank.wait_until(begins + 20 * number * US + random(20) * US + late_ns);
        }
        let mut is_slow = false;
        for _ in 0..TOKENS {
            let held: Vec<bool> = gang.iter_mut().map(Rank::launch).collect();
            let switches = held.contains(&false);
            let launched = gang.iter().map(|rank| rank.server.now).max().unwrap_or(0);
            let ends = launched + (1_000 + random(30)) * US + if switches { 400 * US } else { 0 };
            for rank in &mut gang {
                rank.server.now = ends + random(5) * US;
                rank.server.finish();
                rank.server.now += (40 + random(20)) * US;
            }
            is_slow |= switches;
        }
        gang.iter_mut().for_each(|rank| rank.is_ready = true);
        if is_slow {
            slow.push(request);
        }
    }
    slow
}

fn steady(_: u64, _: u64) -> u64 {
    INTERVAL
}

fn with_pauses(request: u64, _: u64) -> u64 {
    if request.is_multiple_of(BETWEEN_PAUSES) { 3_000 * MS } else { INTERVAL }
}

fn irregular(_: u64, random: u64) -> u64 {
    INTERVAL + random
}

/// Requests that are samples of later benefit tests, at most: one in 512 for each rank.
fn samples(ranks: u64, requests: u64) -> usize {
    usize::try_from((requests / 512 + 1) * ranks).unwrap()
}

#[test]
fn each_rank_is_held_from_its_first_launch_on_whether_the_request_was_predicted_or_not() {
    type Interval = fn(u64, u64) -> u64;
    let intervals: [(&str, Interval); 3] =
        [("steady", steady), ("with pauses", with_pauses), ("irregular", irregular)];
    for ((name, interval), ranks) in intervals.into_iter().flat_map(|one| [(one, 2), (one, 8)]) {
        for late in [0, 3] {
            let requests = 2_000;
            let slow = slow_requests(ranks, requests, late, interval);
            let later = slow.iter().filter(|request| **request >= LEARNED).count();
            let what = format!("{ranks} ranks, {name}, {late} % late: slow are {slow:?}");
            assert!(later <= samples(ranks, requests), "{what}");
        }
    }
}
