//! The machine through whole requests, and the words that calls look at.

mod benefit;
mod predicted;

use super::*;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// A process that serves requests one after another, and the machine beside it.
struct Server {
    machine: HoldKernelState,
    now: u64,
    launches: u64,
}

impl Server {
    fn new() -> Self {
        let mut machine = HoldKernelState::new(Settings::default());
        machine.set_contenders(1);
        let mut server = Self { machine, now: 1_000 * MS, launches: 0 };
        server.launch();
        server.finish();
        server
    }

    fn launch(&mut self) -> Option<u32> {
        self.launches += 1;
        self.machine.launch_submitted(self.now)
    }

    fn finish(&mut self) {
        self.machine.work_finished(self.now, true, self.launches);
    }

    fn begin(&mut self, trigger: Trigger, lead: u64) -> Result<HoldPlan, HoldRefusal> {
        self.machine.begin_request(trigger, self.now, lead)
    }

    /// A request of one launch, `prepared` after its copy, that takes `held` or `plain` in all.
    fn request(&mut self, prepared: u64, held: u64, plain: u64) -> Option<HoldPlan> {
        let began = self.now;
        let hold = self.begin(Trigger::Copy, 0).ok();
        self.now += prepared;
        assert_eq!(self.launch(), hold.map(|hold| hold.ticket));
        self.now = began + if hold.is_some() { held } else { plain };
        assert_eq!(self.machine.host_wait_begins(false), None, "released already");
        self.finish();
        self.now += 8 * MS;
        hold
    }

    /// As many requests as a trial takes, and some: from here on holds pay.
    fn settled() -> Self {
        let mut server = Self::new();
        (0..50).for_each(|_| _ = server.request(60 * US, 1000 * US, 1100 * US));
        server
    }
}

#[test]
fn a_copy_after_idle_begins_a_hold_that_the_first_launch_releases() {
    let mut server = Server::new();
    let hold = server.begin(Trigger::Copy, 0).expect("idle, with company");
    assert_eq!((hold.starts_ns, hold.timeout_ns), (server.now, 2 * MS), "nothing is known yet");
    assert!(server.machine.is_active());
    assert_eq!(
        server.begin(Trigger::Copy, 0),
        Err(HoldRefusal::AlreadyBegun),
        "the second copy of the request"
    );
    assert_eq!(server.launch(), Some(hold.ticket));
    assert!(!server.machine.is_active());
    assert_eq!(server.launch(), None);
    assert_eq!(server.begin(Trigger::Copy, 0), Err(HoldRefusal::Running));
}

#[test]
fn nothing_is_held_before_the_first_work_has_finished() {
    let mut machine = HoldKernelState::new(Settings::default());
    machine.set_contenders(1);
    assert_eq!(machine.begin_request(Trigger::Copy, 5, 0), Err(HoldRefusal::Running));
}

#[test]
fn nothing_is_held_without_company_or_leave() {
    let mut server = Server::new();
    server.machine.set_contenders(0);
    assert!(!server.machine.is_armed() && !server.machine.is_allowed());
    assert_eq!(server.begin(Trigger::Copy, 0), Err(HoldRefusal::NoContenders));
    server.machine = HoldKernelState::new(Settings { automatic: false, ..Settings::default() });
    server.machine.set_contenders(3);
    server.launch();
    server.finish();
    assert_eq!(server.begin(Trigger::Copy, 0), Err(HoldRefusal::Disabled));
    assert!(server.begin(Trigger::Hint, 300 * US).is_ok());
}

#[test]
fn a_hold_outlasts_waits_for_the_input_but_not_waits_for_everything() {
    let mut server = Server::new();
    let hold = server.begin(Trigger::Copy, 0).expect("idle, with company");
    assert_eq!(server.machine.host_wait_begins(false), None);
    assert_eq!(
        server.machine.host_wait_begins(true),
        Some(hold.ticket),
        "the program would wait for the hold"
    );
    assert_eq!(server.launch(), None);
}

#[test]
fn a_request_that_launches_nothing_is_not_held_again_until_work_has_come_and_gone() {
    let mut server = Server::new();
    let first = server.begin(Trigger::Copy, 0).expect("idle, with company");
    server.machine.host_wait_begins(true);
    server.now += 100 * MS;
    assert_eq!(server.begin(Trigger::Copy, 0), Err(HoldRefusal::AlreadyBegun));
    // Whatever else has come to rest, it was not this request.
    server.finish();
    assert_eq!(server.begin(Trigger::Copy, 0), Err(HoldRefusal::AlreadyBegun));
    server.launch();
    server.finish();
    // One of the two is the trial's: with, then without.
    let next = server.begin(Trigger::Copy, 0).or_else(|_| {
        server.launch();
        server.finish();
        server.begin(Trigger::Copy, 0)
    });
    assert!(next.expect("armed again").ticket > first.ticket);
}

#[test]
fn the_timeout_follows_the_preparation_and_never_exceeds_the_budget() {
    let mut server = Server::settled();
    let steady = server.begin(Trigger::Copy, 0).expect("holds pay").timeout_ns;
    assert!((60 * US..600 * US).contains(&steady), "{steady}");
    server.launch();
    server.finish();
    for at in 0..200 {
        let prepared = if at % 2 == 0 { 50 * US } else { 1900 * US };
        if let Some(hold) = server.request(prepared, 1000 * US, 1100 * US) {
            assert!(hold.timeout_ns <= 2 * MS);
        }
    }
    let wavering = server.begin(Trigger::Copy, 0).expect("holds pay").timeout_ns;
    assert_eq!(wavering, 2 * MS);
}

#[test]
fn a_long_preparation_is_not_held_from_its_beginning() {
    let mut server = Server::new();
    (0..100).for_each(|_| _ = server.request(5 * MS, 6 * MS, 7 * MS));
    let hold = server.begin(Trigger::Copy, 0).expect("holds pay");
    let (from, to) = (hold.starts_ns - server.now, hold.starts_ns + hold.timeout_ns - server.now);
    assert!(from > 4 * MS && from < 5 * MS - 300 * US, "early enough to have the GPU by then: {from}");
    assert!(to > 5 * MS, "{to}");
}

#[test]
fn where_the_budget_cannot_cover_the_whole_margin_it_covers_the_middle() {
    let mut server = Server::new();
    for at in 0..200 {
        server.request(if at % 2 == 0 { 4 * MS } else { 6 * MS }, 7 * MS, 9 * MS);
    }
    let hold = server.begin(Trigger::Copy, 0).expect("holds pay");
    let (from, to) = (hold.starts_ns - server.now, hold.starts_ns + hold.timeout_ns - server.now);
    assert!((3500 * US..4500 * US).contains(&from) && (5500 * US..6500 * US).contains(&to), "{from} to {to}");
}

#[test]
fn a_call_is_held_for_the_time_it_names_as_far_as_that_is_true() {
    let mut server = Server::new();
    for _ in 0..100 {
        server.begin(Trigger::Hint, 1000 * US).expect("calls are believed");
        // This program is always 200 us later than it says.
        server.now += 1200 * US;
        assert_eq!(
            server.begin(Trigger::Copy, 0),
            Err(HoldRefusal::AlreadyBegun),
            "the copy of the request announced"
        );
        server.launch();
        server.now += MS;
        server.finish();
        server.now += 5 * MS;
    }
    let hold = server.begin(Trigger::Hint, 1000 * US).expect("calls are believed");
    let starts = hold.starts_ns - server.now;
    assert!((700 * US..900 * US).contains(&starts), "cost and margin before 1200 us: {starts}");
    assert!(hold.starts_ns + hold.timeout_ns - server.now > 1200 * US);
}

#[test]
fn a_call_not_far_ahead_is_held_at_once_and_until_the_request_is_there() {
    let mut server = Server::new();
    for _ in 0..100 {
        let hold = server.begin(Trigger::Hint, 300 * US).expect("calls are believed");
        assert_eq!(hold.starts_ns, server.now);
        assert!(hold.timeout_ns > 300 * US, "{}", hold.timeout_ns);
        server.now += 320 * US;
        assert_eq!(server.launch(), Some(hold.ticket));
        server.finish();
        server.now += 9 * MS;
    }
}

#[test]
fn a_call_too_far_ahead_or_in_the_middle_of_work_holds_nothing() {
    let mut server = Server::new();
    assert_eq!(server.begin(Trigger::Hint, 2_000 * MS), Err(HoldRefusal::TooFarAhead));
    server.launch();
    assert_eq!(server.begin(Trigger::Hint, 300 * US), Err(HoldRefusal::Running));
}

#[test]
fn requests_of_many_launches_are_held_until_the_program_waits() {
    let mut server = Server::new();
    for _ in 0..30 {
        (0..20).for_each(|_| _ = server.launch());
        server.machine.host_wait_begins(false);
        server.finish();
    }
    let hold = server.begin(Trigger::Copy, 0).expect("idle, with company");
    assert_eq!(hold.timeout_ns, 2 * MS, "its end cannot be foretold");
    assert_eq!(server.launch(), None);
    assert_eq!(server.launch(), None);
    assert_eq!(server.machine.host_wait_begins(false), Some(hold.ticket));
}

#[test]
fn the_words_say_what_calls_have_to_do() {
    let hints = HoldKernels::new(Settings::default());
    hints.work_finished(1, || 1);
    assert!(!hints.is_allowed() && !hints.is_armed(), "nobody allowed it");
    hints.set_contenders(1);
    hints.launch_submitted(5);
    hints.host_wait_ended(9);
    hints.work_finished(9, || 1);
    assert!(hints.is_armed() && hints.watches_launches() && !hints.is_active());
    let hold = hints.begin_request(Trigger::Copy, 10, 0).expect("idle, with company");
    assert!(!hints.is_armed() && hints.watches_launches() && hints.is_active());
    assert_eq!(hints.launch_submitted(20), Some(hold.ticket));
    assert!(!hints.watches_launches() && !hints.is_active());
}

#[test]
fn after_a_fork_nothing_is_looked_at_any_more() {
    let hints = HoldKernels::new(Settings::default());
    hints.set_contenders(1);
    hints.launch_submitted(5);
    hints.work_finished(9, || 1);
    hints.abandon();
    assert!(!hints.is_armed());
    hints.set_contenders(2);
    hints.work_finished(10, || 2);
    assert!(!hints.is_armed() && !hints.is_allowed());
}
