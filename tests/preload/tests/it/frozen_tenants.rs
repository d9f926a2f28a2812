//! Tenants that are stopped (SIGSTOP, or one thread by ptrace) while they report work: the others receive the GPU, by the simulated GPU's ledger.

use std::sync::mpsc::{self, TryRecvError};
use std::{fs, thread};

use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use sluice_preload_tests::tenant::{busy, end};
use sluice_preload_tests::{MS, Node, Tenant, exclusive, shared};
use sluice_sim::ledger::Interval;

const SECOND: u64 = 1_000 * MS;
const FIVE: &str = "5\na 0.2 1.0 1073741824\nb 0.2 1.0 1073741824\nc 0.2 1.0 1073741824\nd 0.2 1.0 1073741824\ne 0.2 1.0 1073741824\n";

fn signal(tenants: &[Tenant], signal: Signal) {
    tenants.iter().for_each(|tenant| tenant.signal(signal));
}

/// The part of the next 3 s in which the GPU runs this tenant, and what the host took meanwhile.
fn share(node: &Node, tenant: &Tenant) -> (f64, f64) {
    let measured = node.undisturbed(3 * SECOND);
    (node.window(measured.span).share_of_time(tenant.pid()), measured.taken)
}

/// Four of five clients are stopped for some seconds. Without a remedy the fifth has .19 of the GPU and the rest is idle.
fn four_of_five_are_stopped(node: &Node) {
    let mut tenants = busy(node, &["a", "b", "c", "d", "e"], "2000 50");
    let fifth = tenants.remove(4);
    node.let_pass(SECOND);
    signal(&tenants, Signal::SIGSTOP);
    // Each of the four may have one more quantum, after which it is found to be stopped.
    node.let_pass(SECOND);
    let (alone, taken) = share(node, &fifth);
    signal(&tenants, Signal::SIGCONT);
    assert!(alone >= 0.9 - taken, "{alone} of the GPU beside four stopped clients");
    node.let_pass(SECOND);
    let (shared, taken) = share(node, &fifth);
    assert!(shared <= 0.3 + taken, "{shared} of the GPU beside four that continue");
    tenants.push(fifth);
    end(tenants);
}

#[test]
fn stopped_hardware_scheduled_clients_leave_the_gpu_to_the_fifth() {
    let _lock = exclusive();
    four_of_five_are_stopped(&Node::with(FIVE).manager_arguments("--controls simulated").start());
}

#[test]
fn stopped_token_scheduled_clients_leave_the_gpu_to_the_fifth() {
    let _lock = exclusive();
    four_of_five_are_stopped(&Node::with(FIVE).manager_arguments("--controls off").start());
}

/// One kernel of 10 s, beside a client with short ones: the GPU divides its time between both.
#[test]
fn process_with_one_long_kernel_keeps_its_quanta() {
    let _lock = exclusive();
    let node = Node::with("2\nlong 0.5 1.0 1073741824\nshort 0.5 1.0 1073741824\n")
        .manager_arguments("--controls simulated")
        .start();
    let mut long = node.tenant("long", "tenant").start();
    long.expect("ready");
    let tenants = busy(&node, &["short"], "2000 50");
    assert_eq!(long.ask("launch 1 10000000"), "launched");
    node.let_pass(SECOND);
    let (share, taken) = share(&node, &long);
    assert!(share >= 0.4 - taken, "{share} of the GPU");
    long.signal(Signal::SIGKILL);
    assert_eq!(long.ending().signal(), Some(9));
    end(tenants);
}

/// One thread of a process, stopped by ptrace until this is dropped.
struct StoppedThread(Pid);

impl StoppedThread {
    fn stop(process: i32, name: &str) -> Self {
        let tasks = fs::read_dir(format!("/proc/{process}/task")).expect("the threads");
        let named = |id: &String| {
            fs::read_to_string(format!("/proc/{process}/task/{id}/comm"))
                .is_ok_and(|comm| comm.trim_end() == name)
        };
        let mut ids = tasks.filter_map(|task| task.ok()?.file_name().into_string().ok());
        let id = ids.find(named).unwrap_or_else(|| panic!("process {process} has no thread {name}"));
        let thread = Pid::from_raw(id.parse().expect("a thread's id"));
        ptrace::seize(thread, Options::empty()).expect("seize the thread");
        ptrace::interrupt(thread).expect("interrupt the thread");
        waitpid(thread, Some(WaitPidFlag::__WALL)).expect("the thread stops");
        Self(thread)
    }
}

impl Drop for StoppedThread {
    fn drop(&mut self) {
        let _ = ptrace::detach(self.0, None);
    }
}

/// The tracker closes the launch gate at the deadline, and most launches read no clock while the deadline is far ahead. If the tracker does
/// not run, the program's launches find the deadline: within 2 s after it the GPU has none of them. Then the manager takes the grant back.
#[test]
fn process_whose_tracker_does_not_run_launches_nothing_after_its_deadline() {
    let _lock = shared();
    let clients = "2\npaced 0.5 1.0 1073741824\nbusy 0.5 1.0 1073741824\n";
    let node = Node::with(clients).manager_arguments("--controls off").start();
    let mut paced = node.tenant("paced", "tenant").environment("SLUICE_IDLE_US", "10000000").start();
    paced.expect("ready");
    let pid = paced.pid();
    let tenants = thread::scope(|scope| {
        let (running, ended) = mpsc::channel::<()>();
        // Launches without a wait in between: each launch behind a wait is noted, and reads the clock.
        let paced = &mut paced;
        scope.spawn(move || {
            while ended.try_recv() == Err(TryRecvError::Empty) {
                assert_eq!(paced.ask("launch 1 100"), "launched");
            }
        });
        node.when("kernels", |ledger| {
            ledger.by_pid(pid).filter(|row| row.kernels_completed >= 16).map(|_| ())
        });
        let tracker = StoppedThread::stop(pid, "sluice-tracker");
        let tenants = busy(&node, &["busy"], "1000 8");
        let timeline = node.timeline((0, node.ledger().gpu.now_ns));
        drop((tracker, running));
        let begins = |interval: &&Interval| interval.pid == tenants[0].pid();
        let granted = timeline.iter().find(begins).expect("the other client's kernels").start_ns;
        let before = timeline.iter().filter(|interval| interval.pid == pid && interval.end_ns <= granted);
        let last = before.map(|interval| interval.end_ns).max().expect("kernels before the deadline");
        let gap = granted - last;
        assert!(gap > SECOND, "launched until {gap} ns before the grant was taken back");
        tenants
    });
    assert_eq!(paced.ask("sync"), "synced");
    paced.finish().expect_success();
    end(tenants);
}
