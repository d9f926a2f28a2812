//! Hold kernels that span requests of many tokens, beside a process that always has work.

use nix::sys::signal::Signal;
use sluice_preload_tests::recording_manager::{RecordingManager, Understands};
use sluice_preload_tests::{MS, Node, Tenant, eventually, shared};

const TOKENS: u64 = 30;
const REQUESTS: u64 = 10;

/// What [`REQUESTS`] requests cost.
#[derive(Debug)]
struct Seen {
    /// Hold kernels.
    held: u64,
    /// Times that the service's context was taken off the GPU.
    saves: u64,
    /// Ends of its time slices, at which it is taken off in any case.
    slices: u64,
}

struct DecodeBed {
    node: Node,
    manager: RecordingManager,
    busy: Tenant,
    service: Tenant,
}

impl DecodeBed {
    /// A decoding service that has learned, beside a busy process. `how` is the program's argument; `hints` the hook's setting.
    fn start(how: &str, hints: &str) -> Self {
        let node =
            Node::with("2\nlc 0.5 1.0 8589934592\nother 0.5 1.0 8589934592\n").without_manager().start();
        let manager = RecordingManager::start(&node.socket(), Understands::Contexts);
        manager.set_contenders(true, 1);
        let busy = node.tenant("other", "busy").arguments("1000 64").environment("SLUICE_HINTS", "off");
        let mut busy = busy.start();
        busy.expect("ready");
        let service = node.tenant("lc", "tokens").arguments(&format!("{how} {TOKENS}"));
        let mut service = service.environment("SLUICE_HINTS", hints);
        if hints != "off" {
            service = service.environment("EXPECT_HOLDS", "1");
        }
        let mut service = service.start();
        service.expect("ready");
        Self { node, manager, busy, service }
    }

    /// How often the service's context was taken off the GPU, and its time slice.
    fn saves(&self) -> (u64, u64) {
        let groups = self.node.ledger().groups;
        let own = || groups.iter().filter(|group| group.pid == self.service.pid());
        (
            own().map(|group| u64::from(group.saves)).sum(),
            own().map(|group| group.timeslice_ns).min().unwrap_or(1),
        )
    }

    fn requests(&mut self) -> Seen {
        let ((saves, slice_ns), gpu_ns) = (self.saves(), self.node.row(&self.service).gpu_ns);
        let line = self.service.ask(&format!("requests {REQUESTS}"));
        let held = line.strip_prefix("holds ").and_then(|held| held.parse().ok());
        Seen {
            held: held.unwrap_or_else(|| panic!("{line}")),
            saves: self.saves().0 - saves,
            slices: (self.node.row(&self.service).gpu_ns - gpu_ns).div_ceil(slice_ns),
        }
    }

    fn finish(self) {
        self.service.finish().expect_success();
        self.busy.finish().expect_success();
    }
}

#[test]
fn without_hold_kernels_each_token_costs_context_switches() {
    let _lock = shared();
    let mut bed = DecodeBed::start("learned", "off");
    let seen = bed.requests();
    assert!(seen.held == 0 && seen.saves > REQUESTS * TOKENS / 3, "{seen:?}");
    bed.finish();
}

#[test]
fn one_hold_kernel_spans_a_request_and_saves_its_context_switches() {
    let _lock = shared();
    let mut bed = DecodeBed::start("learned", "auto");
    let seen = bed.requests();
    // A delay of this machine between two tokens ends a request, so there may be more than ten.
    assert!(seen.held < REQUESTS * TOKENS / 4, "{seen:?}");
    assert!(
        seen.saves <= seen.slices + 2 * seen.held,
        "only at the end of a slice or of a request: {seen:?}"
    );
    bed.finish();
}

#[test]
fn request_that_has_waited_for_the_one_before_uses_its_hold_kernel() {
    let _lock = shared();
    let mut bed = DecodeBed::start("learned", "auto");
    // It forgets the gaps between tokens, and learns that one request in six follows at once.
    bed.service.ask("short 800");
    let held = bed.service.ask("short 120");
    let held: u64 = held.strip_prefix("holds ").and_then(|held| held.parse().ok()).unwrap();
    // Of the 20 that follow, some may be delayed by this machine for longer than the linger time.
    assert!((70..=110).contains(&held), "{held} hold kernels for 120 requests");
    let linger_ns = bed.manager.reported(|report| report.linger_ns());
    assert!((20_000..400_000).contains(&linger_ns), "{linger_ns}");
    let error_ns = bed.manager.reported(|report| report.prediction_errors_ns()[1]);
    assert!((1..20 * MS).contains(&error_ns), "error of the predicted preparation: {error_ns} ns");
    bed.finish();
}

#[test]
fn marked_request_is_held_from_begin_to_end() {
    let _lock = shared();
    let mut bed = DecodeBed::start("marked", "api");
    let seen = bed.requests();
    assert_eq!(seen.held, REQUESTS);
    assert!(
        seen.saves <= seen.slices + 2 * seen.held,
        "only at the end of a slice or of a request: {seen:?}"
    );
    bed.finish();
}

#[test]
fn hold_seconds_count_no_time_in_which_the_program_has_work() {
    let _lock = shared();
    let mut bed = DecodeBed::start("marked", "api");
    let (held_before, before) = (bed.manager.hold_ns(), bed.node.row(&bed.service));
    bed.requests();
    let kernel_ns = bed.node.row(&bed.service).kernel_ns - before.kernel_ns;
    // The sum of kernel times counts the hold kernels once for the time of the tokens.
    let held = eventually("the time of the hold kernels", || {
        let held = bed.manager.hold_ns() - held_before;
        (held > 0).then_some(held)
    });
    assert!(held < kernel_ns, "{held} of {kernel_ns} ns");
    bed.finish();
}

#[test]
fn hold_seconds_count_each_of_several_hold_kernels_in_a_row() {
    let _lock = shared();
    let mut bed = DecodeBed::start("marked", "api");
    let (held_before, before) = (bed.manager.hold_ns(), bed.node.row(&bed.service));
    assert_eq!(bed.service.ask("marks 20"), "done");
    is_off_the_gpu(&bed, "the last hold kernel to end");
    let after = bed.node.row(&bed.service);
    let (kernels, kernel_ns) =
        (after.kernels_completed - before.kernels_completed, after.kernel_ns - before.kernel_ns);
    // One kernel could have the most of the time otherwise. How long each lasts depends on how soon its thread wakes up.
    assert!(kernels >= 20 && kernel_ns > MS, "{kernels} kernels, {kernel_ns} ns");
    eventually("the time of all hold kernels", || {
        (bed.manager.hold_ns() - held_before >= kernel_ns * 9 / 10).then_some(())
    });
    bed.finish();
}

/// GPU time of all hold kernels and tokens of the service does not grow any more.
fn is_off_the_gpu(bed: &DecodeBed, within: &str) {
    eventually(within, || {
        let row = bed.node.row(&bed.service);
        (row.kernels_submitted == row.kernels_completed).then_some(())
    });
}

#[test]
fn stopped_process_keeps_the_gpu_for_at_most_a_quantum() {
    let _lock = shared();
    let mut bed = DecodeBed::start("marked", "api");
    let before = bed.node.row(&bed.service).kernel_ns;
    bed.service.send("stop");
    let stat = format!("/proc/{}/stat", bed.service.pid());
    eventually("the process to be stopped", || {
        std::fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") T ")).then_some(())
    });
    is_off_the_gpu(&bed, "the hold kernel to end by itself");
    let held = bed.node.row(&bed.service).kernel_ns - before;
    assert!((10 * MS..60 * MS).contains(&held), "held for {held} ns");
    bed.service.signal(Signal::SIGCONT);
    bed.service.expect("done");
    assert_eq!(bed.requests().held, REQUESTS, "later requests are held as before");
    bed.finish();
}

#[test]
fn forks_captures_and_ends_of_contexts_leave_no_hold_kernel_behind() {
    let _lock = shared();
    for (how, hints) in [("marked", "api"), ("learned", "auto")] {
        let mut bed = DecodeBed::start(how, hints);
        for event in ["fork", "capture", "end"] {
            assert_eq!(bed.service.ask(event), "done", "{event}");
            if event != "end" {
                is_off_the_gpu(&bed, event);
            }
        }
        bed.finish();
    }
}
