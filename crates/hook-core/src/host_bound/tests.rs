use super::*;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

/// A process that makes one burst after the other, with a manager that applies its wish after 2 ms.
struct Process {
    test: HostBoundTest,
    now: u64,
    /// Host time of a burst, from its first launch to its wait, and GPU time that the wait lasts beside short and default slices.
    host_ns: u64,
    waits_ns: [u64; 2],
    launches: u64,
    pause_ns: u64,
    contenders: u64,
    in_force: Slices,
    wished_at: u64,
    /// The manager grants default slices.
    grants_default: bool,
    /// Times at which the wish changed, with the wish.
    changes: Vec<(u64, Slices)>,
    random: u64,
    noise: u64,
}

impl Process {
    /// 300 launches in 3.4 ms, and a wait of 0.4 ms beside either kind of slices.
    fn host_bound() -> Self {
        Self {
            test: HostBoundTest::default(),
            now: S,
            host_ns: 3_400 * US,
            waits_ns: [400 * US; 2],
            launches: 300,
            pause_ns: 50 * US,
            contenders: 1,
            in_force: Slices::Short,
            wished_at: 0,
            grants_default: true,
            changes: Vec::new(),
            random: 7,
            noise: 0,
        }
    }

    /// One launch of a graph, then a wait for the GPU.
    fn gpu_bound() -> Self {
        Self { host_ns: 20 * US, waits_ns: [1_200 * US, 3_500 * US], launches: 1, ..Self::host_bound() }
    }

    fn wanted(&self) -> Slices {
        self.test.report().wanted
    }

    fn burst(&mut self) {
        let wanted = self.wanted();
        if self.now >= self.wished_at + 2 * MS && (wanted == Slices::Short || self.grants_default) {
            self.in_force = wanted;
        }
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let noise = (self.random >> 33) % (self.noise + 1);
        let begun_ns = self.now;
        let waited_ns = begun_ns + self.host_ns + noise;
        let ended_ns = waited_ns + self.waits_ns[self.in_force as usize];
        let burst = Burst { begun_ns, waited_ns, ended_ns, launches: self.launches };
        self.test.burst_ended(burst, self.contenders, self.in_force);
        self.now = ended_ns + self.pause_ns;
        if self.wanted() != wanted {
            self.wished_at = self.now;
            self.changes.push((self.now, self.wanted()));
        }
    }

    fn run(&mut self, ns: u64) {
        let end = self.now + ns;
        while self.now < end {
            self.burst();
        }
    }
}

#[test]
fn host_bound_process_wants_default_slices_after_one_test() {
    let mut process = Process::host_bound();
    process.run(5 * S);
    assert_eq!(process.wanted(), Slices::Default);
    let wishes: Vec<Slices> = process.changes.iter().map(|(_, slices)| *slices).collect();
    assert_eq!(wishes, [Slices::Default, Slices::Short, Slices::Default], "two blocks each");
    process.run(590 * S);
    assert_eq!(process.changes.len(), 3, "the decision stays for ten minutes");
    process.run(20 * S);
    assert_eq!(process.wanted(), Slices::Default);
    assert!(process.changes.len() > 3, "then the process is tested again");
}

#[test]
fn missed_goals_beside_default_slices_bring_short_ones_until_the_next_test() {
    let mut process = Process::host_bound();
    process.run(5 * S);
    assert_eq!(process.wanted(), Slices::Default);
    process.test.request_ended(true, process.now, 1, Slices::Default);
    assert_eq!(process.wanted(), Slices::Default, "one request may have waited for the host");
    process.test.request_ended(true, process.now, 1, Slices::Default);
    assert_eq!(process.wanted(), Slices::Short);
    process.run(590 * S);
    assert_eq!(process.wanted(), Slices::Short, "the decision stays for ten minutes");
    process.run(20 * S);
    assert_eq!(process.wanted(), Slices::Default, "then another test decides");
}

#[test]
fn goals_missed_beside_short_slices_or_seldom_leave_default_ones() {
    let mut process = Process::host_bound();
    process.run(5 * S);
    for request in 0..1_000 {
        process.test.request_ended(request % 200 == 0, process.now, 1, Slices::Default);
        // Another latency-critical process keeps the slices short.
        process.test.request_ended(true, process.now, 1, Slices::Short);
    }
    assert_eq!(process.wanted(), Slices::Default);
}

/// A process with a pause of 36 ms behind each burst: its host submits in 0.085 of the time.
fn seldom() -> Process {
    Process { pause_ns: 36 * MS, waits_ns: [400 * US, 1_200 * US], ..Process::host_bound() }
}

#[test]
fn short_slices_stay_if_the_process_gains_a_larger_part_than_best_effort_loses() {
    let mut process = seldom();
    process.run(20 * S);
    assert_eq!(process.wanted(), Slices::Short);
    assert_eq!(process.changes.len(), 4, "each kind was tested twice");
    assert_eq!(process.test.report().medians_ns, (3_800 * US, 4_600 * US));
    process.run(500 * S);
    assert_eq!(process.changes.len(), 4);
}

#[test]
fn default_slices_are_wanted_if_best_effort_would_lose_more_than_the_process_gains() {
    // It gains 17 % as well, but submits nearly all the time.
    let mut process = Process { pause_ns: 50 * US, ..seldom() };
    process.run(5 * S);
    assert_eq!(process.wanted(), Slices::Default);
    // It gains 3 %.
    let mut process = Process { waits_ns: [400 * US, 520 * US], ..seldom() };
    process.run(20 * S);
    assert_eq!(process.wanted(), Slices::Default);
}

#[test]
fn gpu_bound_process_never_wants_default_slices() {
    let eager = Process { launches: 300, host_ns: 900 * US, ..Process::gpu_bound() };
    let single = Process { host_ns: 3_000 * US, ..Process::gpu_bound() };
    for mut process in [Process::gpu_bound(), eager, Process { waits_ns: [1_500 * US; 2], ..single }] {
        process.run(100 * S);
        assert!(process.changes.is_empty());
    }
}

#[test]
fn host_bound_first_step_of_requests_does_not_start_a_test() {
    let mut process = Process::gpu_bound();
    for _ in 0..200 {
        (process.host_ns, process.launches) = (8_000 * US, 700);
        process.burst();
        (process.host_ns, process.launches) = (20 * US, 1);
        (0..47).for_each(|_| process.burst());
    }
    assert!(process.changes.is_empty());
}

#[test]
fn small_waits_between_the_steps_do_not_prevent_a_test() {
    let mut process = Process::host_bound();
    for _ in 0..500 {
        (process.host_ns, process.launches) = (3_400 * US, 300);
        process.burst();
        (process.host_ns, process.launches) = (10 * US, 2);
        process.burst();
    }
    assert_eq!(process.wanted(), Slices::Default);
}

#[test]
fn process_that_waits_for_the_gpu_again_wants_short_slices_at_once() {
    let mut process = Process::host_bound();
    process.run(5 * S);
    let bound_until = process.now;
    (process.host_ns, process.waits_ns, process.launches) = (20 * US, [4 * MS; 2], 1);
    process.run(S);
    let (at, wanted) = *process.changes.last().unwrap();
    assert_eq!(wanted, Slices::Short);
    assert!(at - bound_until < 64 * 4 * MS, "{at} {bound_until}");
}

#[test]
fn another_number_of_contenders_starts_a_test_and_a_pause_of_one_does_not() {
    let mut process = Process::host_bound();
    process.run(12 * S);
    let before = process.changes.len();
    for _ in 0..20 {
        process.contenders = 2;
        process.run(100 * MS);
        process.contenders = 1;
        process.run(100 * MS);
    }
    assert_eq!(process.changes.len(), before);
    process.contenders = 2;
    process.run(2 * S);
    assert!(process.changes.len() > before);
    assert_eq!(process.wanted(), Slices::Default);
}

#[test]
fn noise_starts_at_most_one_test_in_ten_seconds() {
    // From one burst to the next the process is submission-bound or not.
    let mut process = Process { noise: 4_000 * US, host_ns: 400 * US, ..Process::host_bound() };
    process.waits_ns = [1_500 * US; 2];
    process.run(100 * S);
    assert!(process.changes.len() <= 4 * 10, "{}", process.changes.len());
    // Durations vary by 10 %.
    let mut process = Process { noise: 400 * US, ..Process::host_bound() };
    process.run(500 * S);
    assert_eq!((process.changes.len(), process.wanted()), (3, Slices::Default));
}

#[test]
fn bursts_count_only_beside_the_slices_of_their_block() {
    let mut process = Process { grants_default: false, ..Process::host_bound() };
    process.run(20 * S);
    assert_eq!(process.test.report().medians_ns, (0, 0), "default slices were never in force");
    process.grants_default = true;
    process.run(5 * S);
    assert_eq!(process.test.report().medians_ns, (3_800 * US, 3_800 * US));
}
