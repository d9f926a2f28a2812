//! The state through whole requests, and the flags that calls test.

mod benefit;
mod copies;
mod gang;
mod leading;
mod predicted;
mod short_requests;
mod whole_requests;

use super::*;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// A process that serves requests one after another, with the state of its hold kernels.
struct Server {
    state: HoldKernelState,
    now: u64,
    launches: u64,
}

impl Server {
    fn new() -> Self {
        let mut state = HoldKernelState::new(Settings::default());
        state.set_contenders(1);
        let mut server = Self { state, now: 1_000 * MS, launches: 0 };
        server.launch();
        server.finish();
        server
    }

    fn launch(&mut self) -> Option<u32> {
        self.launches += 1;
        self.state.launch_submitted(self.now)
    }

    fn finish(&mut self) {
        self.state.work_finished(self.now, BurstEnd::Exact, self.launches);
    }

    fn begin(&mut self, trigger: Trigger, lead: u64) -> Result<HoldPlan, HoldRefusal> {
        self.state.begin_request(trigger, self.now, lead)
    }

    /// A request of one launch, `prepared` after its copy, that takes `held` or `without` in all.
    fn request(&mut self, prepared: u64, held: u64, without: u64) -> Option<HoldPlan> {
        let began = self.now;
        let hold = self.begin(Trigger::Copy, 0).ok();
        self.now += prepared;
        assert_eq!(self.launch(), hold.map(|hold| hold.ticket));
        self.now = began + if hold.is_some() { held } else { without };
        assert_eq!(self.state.host_wait_begins(false), None, "released already");
        self.finish();
        self.now += 8 * MS;
        hold
    }

    /// A server whose first test is over with the result that hold kernels are beneficial.
    fn settled() -> Self {
        let mut server = Self::new();
        (0..50).for_each(|_| _ = server.request(60 * US, 1000 * US, 1100 * US));
        server
    }
}

#[test]
fn copy_after_idle_plans_a_hold_kernel_that_the_first_launch_releases() {
    let mut server = Server::new();
    let hold = server.begin(Trigger::Copy, 0).expect("idle, with contenders");
    assert_eq!((hold.starts_ns, hold.timeout_ns), (server.now, 2 * MS), "nothing has been learned");
    assert!(server.state.is_active());
    assert_eq!(
        server.begin(Trigger::Copy, 0),
        Err(HoldRefusal::AlreadyBegun),
        "the second copy of the request"
    );
    assert_eq!(server.launch(), Some(hold.ticket));
    assert!(!server.state.is_active());
    assert_eq!(server.launch(), None);
    assert_eq!(server.begin(Trigger::Copy, 0), Err(HoldRefusal::Running));
}

#[test]
fn no_hold_kernel_before_the_first_work_has_finished() {
    let mut state = HoldKernelState::new(Settings::default());
    state.set_contenders(1);
    assert_eq!(state.begin_request(Trigger::Copy, 5, 0), Err(HoldRefusal::Running));
}

#[test]
fn no_hold_kernel_without_contenders_or_permission() {
    let mut server = Server::new();
    server.state.set_contenders(0);
    assert!(!server.state.is_armed() && !server.state.is_allowed());
    assert_eq!(server.begin(Trigger::Copy, 0), Err(HoldRefusal::NoContenders));
    server.state = HoldKernelState::new(Settings { automatic: false, ..Settings::default() });
    server.state.set_contenders(3);
    server.launch();
    server.finish();
    assert_eq!(server.begin(Trigger::Copy, 0), Err(HoldRefusal::Disabled));
    assert!(server.begin(Trigger::Hint, 300 * US).is_ok());
}

#[test]
fn hold_kernel_outlasts_stream_waits_but_not_context_waits() {
    let mut server = Server::new();
    let hold = server.begin(Trigger::Copy, 0).expect("idle, with contenders");
    assert_eq!(server.state.host_wait_begins(false), None);
    assert_eq!(server.state.host_wait_begins(true), Some(hold.ticket), "the program would wait for the hold");
    assert_eq!(server.launch(), None);
}

#[test]
fn request_without_a_launch_gets_no_second_hold_kernel_until_work_has_finished() {
    let mut server = Server::new();
    let first = server.begin(Trigger::Copy, 0).expect("idle, with contenders");
    server.state.host_wait_begins(true);
    server.now += 100 * MS;
    assert_eq!(server.begin(Trigger::Copy, 0), Err(HoldRefusal::AlreadyBegun));
    // Other work has finished, not this request.
    server.finish();
    assert_eq!(server.begin(Trigger::Copy, 0), Err(HoldRefusal::AlreadyBegun));
    server.launch();
    server.finish();
    // One of the two requests is a sample without a hold kernel. Neither continues the one before it.
    server.now += MS;
    let next = server.begin(Trigger::Copy, 0).or_else(|_| {
        server.launch();
        server.finish();
        server.now += MS;
        server.begin(Trigger::Copy, 0)
    });
    assert!(next.expect("armed again").ticket > first.ticket);
}

#[test]
fn timeout_follows_the_preparation_time_within_the_budget() {
    let mut server = Server::settled();
    let steady = server.begin(Trigger::Copy, 0).expect("hold kernels are beneficial").timeout_ns;
    assert!((60 * US..600 * US).contains(&steady), "{steady}");
    server.launch();
    server.finish();
    for at in 0..200 {
        let prepared = if at % 2 == 0 { 50 * US } else { 1900 * US };
        if let Some(hold) = server.request(prepared, 1000 * US, 1100 * US) {
            assert!(hold.timeout_ns <= 2 * MS);
        }
    }
    let wavering = server.begin(Trigger::Copy, 0).expect("hold kernels are beneficial").timeout_ns;
    assert_eq!(wavering, 2 * MS);
}

#[test]
fn hold_kernel_of_a_long_preparation_starts_late() {
    let mut server = Server::new();
    (0..100).for_each(|_| _ = server.request(5 * MS, 6 * MS, 7 * MS));
    let hold = server.begin(Trigger::Copy, 0).expect("hold kernels are beneficial");
    let (from, to) = (hold.starts_ns - server.now, hold.starts_ns + hold.timeout_ns - server.now);
    assert!(from > 4 * MS && from < 5 * MS - 300 * US, "early enough to have the GPU by then: {from}");
    assert!(to > 5 * MS, "{to}");
}

#[test]
fn budget_below_the_margin_covers_the_middle() {
    let mut server = Server::new();
    for at in 0..200 {
        server.request(if at % 2 == 0 { 4 * MS } else { 6 * MS }, 7 * MS, 9 * MS);
    }
    let hold = server.begin(Trigger::Copy, 0).expect("hold kernels are beneficial");
    let (from, to) = (hold.starts_ns - server.now, hold.starts_ns + hold.timeout_ns - server.now);
    assert!((3500 * US..4500 * US).contains(&from) && (5500 * US..6500 * US).contains(&to), "{from} to {to}");
}

#[test]
fn hint_is_corrected_by_the_measured_lateness() {
    let mut server = Server::new();
    for _ in 0..100 {
        server.begin(Trigger::Hint, 1000 * US).expect("controller are accepted");
        // This program is always 200 us later than announced.
        server.now += 1200 * US;
        assert_eq!(
            server.begin(Trigger::Copy, 0),
            Err(HoldRefusal::AlreadyBegun),
            "the copy of the announced request"
        );
        server.launch();
        server.now += MS;
        server.finish();
        server.now += 5 * MS;
    }
    let hold = server.begin(Trigger::Hint, 1000 * US).expect("controller are accepted");
    let starts = hold.starts_ns - server.now;
    assert!((700 * US..900 * US).contains(&starts), "cost and margin before 1200 us: {starts}");
    assert!(hold.starts_ns + hold.timeout_ns - server.now > 1200 * US);
}

#[test]
fn hint_shortly_ahead_starts_at_once_and_lasts_until_the_request() {
    let mut server = Server::new();
    for _ in 0..100 {
        let hold = server.begin(Trigger::Hint, 300 * US).expect("controller are accepted");
        assert_eq!(hold.starts_ns, server.now);
        assert!(hold.timeout_ns > 300 * US, "{}", hold.timeout_ns);
        server.now += 320 * US;
        assert_eq!(server.launch(), Some(hold.ticket));
        server.finish();
        server.now += 9 * MS;
    }
}

#[test]
fn hint_too_far_ahead_or_during_work_is_refused() {
    let mut server = Server::new();
    assert_eq!(server.begin(Trigger::Hint, 2_000 * MS), Err(HoldRefusal::TooFarAhead));
    server.launch();
    assert_eq!(server.begin(Trigger::Hint, 300 * US), Err(HoldRefusal::Running));
}

#[test]
fn hold_kernel_of_a_request_with_many_launches_lasts_until_the_wait() {
    let mut server = Server::new();
    for _ in 0..30 {
        (0..20).for_each(|_| _ = server.launch());
        server.state.host_wait_begins(false);
        server.finish();
        server.now += 8 * MS;
    }
    let hold = server.begin(Trigger::Copy, 0).expect("idle, with contenders");
    assert_eq!(hold.timeout_ns, 2 * MS, "its end is unknown");
    assert_eq!(server.launch(), None);
    assert_eq!(server.launch(), None);
    assert_eq!(server.state.host_wait_begins(false), Some(hold.ticket));
}

#[test]
fn flags_tell_which_calls_matter() {
    let controller = HoldKernels::new(Settings::default());
    controller.work_finished(1, || 1);
    assert!(!controller.is_allowed() && !controller.is_armed(), "hold kernels are not allowed yet");
    controller.set_contenders(1);
    controller.with(|state| state.launch_submitted(5));
    controller.host_wait_ended(9, false);
    controller.work_finished(9, || 1);
    assert!(controller.is_armed() && controller.watches_launches() && !controller.is_active());
    let hold =
        controller.with(|state| state.begin_request(Trigger::Copy, 10, 0)).expect("idle, with contenders");
    assert!(!controller.is_armed() && controller.watches_launches() && controller.is_active());
    assert_eq!(controller.with(|state| state.launch_submitted(20)), Some(hold.ticket));
    assert!(!controller.watches_launches() && !controller.is_active());
}

#[test]
fn abandoned_controller_stays_off() {
    let controller = HoldKernels::new(Settings::default());
    controller.set_contenders(1);
    controller.with(|state| state.launch_submitted(5));
    controller.work_finished(9, || 1);
    controller.abandon();
    assert!(!controller.is_armed());
    controller.set_contenders(2);
    controller.work_finished(10, || 2);
    assert!(!controller.is_armed() && !controller.is_allowed());
}
