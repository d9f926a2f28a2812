//! Jobs on several GPUs: a rank uses GPU time only while its peers run, because it spins in a collective otherwise.

mod node;

use crate::simulated_gpu::{Arrivals, Change, MS, S, Scheduling, SimulatedGpu};
use node::{Job, Node, job};
use sluice_core::ledger::Class;

/// These parts of what they make together, and together at least so much of the time.
fn assert_parts(progress: &[f64], expected: &[f64], within: f64, least_sum: f64) {
    let sum: f64 = progress.iter().sum();
    assert!(sum >= least_sum, "{progress:?} add up to {sum}");
    for (part, expected) in progress.iter().zip(expected) {
        assert!((part / sum - expected).abs() <= within, "{progress:?} of {sum} instead of {expected:?}");
    }
}

/// In the next two seconds, how much later than its first rank each slot's last rank begins to run.
fn skews_ns(node: &mut Node, job: usize) -> Vec<u64> {
    node.step_ns = MS / 50;
    // A rank that begins a slot has not run for so long.
    const PAUSE_NS: u64 = 20 * MS;
    let gpus = node.jobs[job].gpus.clone();
    let (mut ran_ns, mut begins) = (vec![node.now; gpus.len()], vec![Vec::new(); gpus.len()]);
    let end = node.now + 2 * S;
    while node.now < end {
        let before: Vec<u64> = gpus.iter().map(|gpu| node.used_ns(job, *gpu)).collect();
        node.run_until(node.now + node.step_ns);
        let ran = |rank: &usize| node.used_ns(job, gpus[*rank]) > before[*rank];
        for rank in (0..gpus.len()).filter(ran) {
            if node.now - ran_ns[rank] >= PAUSE_NS {
                begins[rank].push(node.now);
            }
            ran_ns[rank] = node.now;
        }
    }
    let slots = begins.iter().map(Vec::len).min().unwrap();
    let of_slot = |slot: usize| begins.iter().map(move |begins| begins[slot]);
    (0..slots).map(|slot| of_slot(slot).max().unwrap() - of_slot(slot).min().unwrap()).collect()
}

/// The managers disable the former client's groups one after the other, and only then enable the gang's: a control waits for those that were
/// begun before it on any GPU. So the ranks begin one after the other, each by the time of one control that enables.
#[test]
fn ranks_of_a_gang_begin_within_half_a_millisecond_on_two_gpus() {
    for (gpus, skew_us) in [(2, 500), (4, 1_000), (8, 2_000)] {
        let all: Vec<usize> = (0..gpus).collect();
        let mut node = Node::new(gpus, Scheduling::Hardware, &[job("a", 0.3, &all), job("b", 0.7, &all)]);
        node.run_until(3 * S);
        for job in [0, 1] {
            let skews = skews_ns(&mut node, job);
            assert!(skews.len() >= 2, "{} slots of {gpus} GPUs", skews.len());
            assert!(skews.iter().all(|skew| *skew <= skew_us * 1_000), "{skews:?} ns on {gpus} GPUs");
        }
    }
}

#[test]
fn two_jobs_get_their_shares_on_two_four_and_eight_gpus() {
    for gpus in [2, 4, 8] {
        let all: Vec<usize> = (0..gpus).collect();
        let mut node = Node::new(gpus, Scheduling::Hardware, &[job("a", 0.3, &all), job("b", 0.7, &all)]);
        let progress = node.progress(3 * S, 13 * S);
        assert_parts(&progress, &[0.3, 0.7], 0.01, 0.95);
    }
}

/// What the test measures exists: without slots the phases of the GPUs drift apart once a manager has paused.
#[test]
fn without_slots_two_jobs_lose_a_quarter() {
    let mut node = Node::new(2, Scheduling::Hardware, &[job("a", 0.3, &[0, 1]), job("b", 0.7, &[0, 1])]);
    node.exchanges = false;
    node.gpus[0].schedule(S, Change::ManagerStops { until: S + 37 * MS });
    node.gpus[0].schedule(S + 37 * MS, Change::ManagerResumes);
    let progress = node.progress(3 * S, 13 * S);
    assert!(progress.iter().sum::<f64>() < 0.8, "{progress:?}");
}

#[test]
fn overlapping_gangs_and_clients_of_one_gpu_get_their_shares() {
    let jobs = [
        job("a", 0.3, &[0, 1]),
        job("b", 0.3, &[1, 2]),
        job("c", 0.3, &[0, 2]),
        job("local-0", 0.4, &[0]),
        job("local-1", 0.4, &[1]),
        job("local-2", 0.4, &[2]),
    ];
    let mut node = Node::new(3, Scheduling::Hardware, &jobs);
    let progress = node.progress(3 * S, 13 * S);
    for (part, job) in progress.iter().zip(&jobs) {
        assert!((part - job.request).abs() <= 0.02, "{progress:?}");
    }
    let on_first = progress[0] + progress[2] + progress[3];
    assert!(on_first >= 0.95, "{progress:?}");
}

/// Three gangs of which each two share GPUs, and a client of each GPU alone that has requested the rest of it.
fn overlapping(gpus: usize) -> Vec<Job> {
    const LOCAL: [&str; 8] =
        ["local-0", "local-1", "local-2", "local-3", "local-4", "local-5", "local-6", "local-7"];
    // Two GPUs have room for three gangs only on both.
    let without =
        |rest: usize| -> Vec<usize> { (0..gpus).filter(|gpu| gpus == 2 || gpu % 3 != rest).collect() };
    let gangs = [job("a", 0.2, &without(2)), job("b", 0.25, &without(0)), job("c", 0.3, &without(1))];
    let rest_of = |gpu| {
        1.0 - gangs.iter().filter(|gang| gang.gpus.contains(&gpu)).map(|gang| gang.request).sum::<f64>()
    };
    let local = (0..gpus).map(|gpu| job(LOCAL[gpu], rest_of(gpu), &[gpu]));
    gangs.iter().cloned().chain(local).collect()
}

/// The hand-offs of all GPUs wait for one driver. So each client loses as much of a cycle, whatever its share, and more with each GPU: in cycles
/// of 400 ms eight GPUs made 0.93, and shares were off by 3.5 points.
#[test]
fn three_overlapping_gangs_with_clients_of_one_gpu_get_their_shares_on_two_four_and_eight_gpus() {
    for gpus in [2, 4, 8] {
        let jobs = overlapping(gpus);
        let mut node = Node::new(gpus, Scheduling::Hardware, &jobs);
        let progress = node.progress(3 * S, 23 * S);
        for gpu in 0..gpus {
            let of_gpu =
                |what: &dyn Fn(usize) -> f64| node.jobs_of[gpu].iter().map(|job| what(*job)).collect();
            let (made, requested): (Vec<f64>, Vec<f64>) =
                (of_gpu(&|job| progress[job]), of_gpu(&|job| jobs[job].request));
            println!("GPU {gpu} of {gpus}: {made:.3?} of {requested:.2?}");
            assert_parts(&made, &requested, 0.01, 0.95);
        }
    }
}

#[test]
fn others_use_the_slot_of_a_gang_that_has_ended_or_pauses() {
    let mut node = Node::new(2, Scheduling::Hardware, &[job("a", 0.5, &[0, 1]), job("b", 0.5, &[0, 1])]);
    for gpu in &mut node.gpus {
        gpu.schedule(3 * S, Change::Dies(0));
        gpu.schedule(6 * S, Change::Starts(0));
    }
    let progress = node.progress(4 * S, 6 * S);
    assert!(progress[1] >= 0.98, "{progress:?}");
    let progress = node.progress(7 * S, 10 * S);
    assert_parts(&progress, &[0.5, 0.5], 0.01, 0.95);
}

/// A training that waits for its input now and then: the pauses are used, and the other job's part does not suffer.
#[test]
fn a_gang_that_pauses_in_its_slot_leaves_the_time_to_the_other_and_comes_back() {
    let pausing = Arrivals::Pausing { work_ns: 40 * MS, pause_ns: 15 * MS };
    let jobs = [Job { arrivals: pausing, ..job("a", 0.5, &[0, 1]) }, job("b", 0.5, &[0, 1])];
    let mut node = Node::new(2, Scheduling::Hardware, &jobs);
    let progress = node.progress(3 * S, 13 * S);
    assert!(progress[1] >= 0.5, "{progress:?}");
    assert!(progress.iter().sum::<f64>() >= 0.9, "{progress:?}");
}

#[test]
fn a_rank_alone_on_its_gpu_does_not_hold_up_the_others() {
    let jobs = [job("a", 0.5, &[0, 1]), job("b", 0.5, &[0, 1])];
    let mut node = Node::new(2, Scheduling::Hardware, &jobs);
    // One rank ends and its peer spins for ever: the other job keeps its share.
    node.gpus[1].schedule(2 * S, Change::Dies(0));
    let progress = node.progress(4 * S, 8 * S);
    assert!(progress[1] >= 0.49, "{progress:?}");
}

/// Two jobs on all GPUs of a node and a client of each GPU alone. `disturb` has something happen to it from 3 s on, and returns when that is
/// over: 2 s later all have their shares again.
fn assert_shares_return(gpus: usize, disturb: impl Fn(&mut Node) -> u64) {
    const LOCAL: [&str; 4] = ["local-0", "local-1", "local-2", "local-3"];
    let all: Vec<usize> = (0..gpus).collect();
    let local = all.iter().map(|gpu| job(LOCAL[*gpu], 0.2, &[*gpu]));
    let jobs: Vec<Job> = [job("a", 0.3, &all), job("b", 0.5, &all)].into_iter().chain(local).collect();
    let mut node = Node::new(gpus, Scheduling::Hardware, &jobs);
    node.run_until(3 * S);
    let over = disturb(&mut node);
    // Whole cycles: 200 ms with two GPUs, 450 ms with four.
    let progress = node.progress(over + 2 * S, over + 2 * S + 14_400 * MS);
    for local in &progress[2..] {
        let made = [progress[0], progress[1], *local];
        assert_parts(&made, &[0.3, 0.5, 0.2], 0.01, 0.95);
    }
}

/// How long something lasts that happens to a node.
const DISTURBED_NS: u64 = 700 * MS;

/// Without a manager, each hook lets its process run.
fn manager_is_away(gpu: &mut SimulatedGpu, from: u64, until: u64) {
    gpu.schedule(from, Change::ManagerStops { until });
    gpu.schedule(from + 200 * MS, Change::HooksTakeOver);
}

/// The manager of one GPU is away, and comes back by this change.
fn assert_shares_return_after_a_manager(comes_back: Change) {
    for gpus in [2, 4] {
        assert_shares_return(gpus, |node| {
            let (leaves, returns) = (node.now, node.now + DISTURBED_NS);
            manager_is_away(&mut node.gpus[1], leaves, returns);
            node.gpus[1].schedule(returns, comes_back);
            returns
        });
    }
}

#[test]
fn shares_return_within_two_seconds_after_a_manager_stopped() {
    assert_shares_return_after_a_manager(Change::ManagerResumes);
}

#[test]
fn shares_return_within_two_seconds_after_a_manager_was_killed_and_another_one_started() {
    assert_shares_return_after_a_manager(Change::ManagerRestarts);
}

/// All managers of a node end with its agent.
#[test]
fn shares_return_within_two_seconds_after_the_agent_and_its_managers_were_restarted() {
    for gpus in [2, 4] {
        assert_shares_return(gpus, |node| {
            let (dies, starts) = (node.now, node.now + DISTURBED_NS);
            for (number, gpu) in (0..).zip(&mut node.gpus) {
                manager_is_away(gpu, dies, starts);
                // They start one after the other.
                gpu.schedule(starts + number * 20 * MS, Change::ManagerRestarts);
            }
            starts + 100 * MS
        });
    }
}

#[test]
fn shares_return_within_two_seconds_after_a_rank_was_stopped() {
    for gpus in [2, 4] {
        assert_shares_return(gpus, |node| {
            let (stops, goes_on, rank) = (node.now, node.now + DISTURBED_NS, node.tenant(0, 1));
            node.gpus[1].schedule(stops, Change::Freezes(rank));
            node.gpus[1].schedule(goes_on, Change::Thaws(rank));
            goes_on
        });
    }
}

#[test]
fn shares_return_within_two_seconds_after_a_rank_was_killed_and_started_again() {
    for gpus in [2, 4] {
        assert_shares_return(gpus, |node| {
            let (dies, starts, rank) = (node.now, node.now + DISTURBED_NS, node.tenant(0, 1));
            node.gpus[1].schedule(dies, Change::Dies(rank));
            node.gpus[1].schedule(starts, Change::Starts(rank));
            starts
        });
    }
}

/// A latency-critical service on two GPUs that wants more than its request is delayed on both at the same time.
#[test]
fn a_latency_critical_gang_beyond_its_request_and_a_best_effort_one_get_their_shares() {
    let service = Job { class: Class::LatencyCritical, ..job("service", 0.45, &[0, 1]) };
    let mut node = Node::new(2, Scheduling::Hardware, &[service, job("training", 0.55, &[0, 1])]);
    node.gpus[0].schedule(S, Change::ManagerStops { until: S + 37 * MS });
    node.gpus[0].schedule(S + 37 * MS, Change::ManagerResumes);
    let progress = node.progress(3 * S, 13 * S);
    assert!(progress[0] >= 0.43 && progress[1] >= 0.45, "{progress:?}");
}

/// The gap between two slots of the gang is too short for a grant of the other client.
#[test]
fn a_client_with_a_small_share_gets_it_beside_a_gang() {
    let jobs = [job("a", 0.97, &[0, 1]), job("local", 0.03, &[0])];
    let mut node = Node::new(2, Scheduling::Hardware, &jobs);
    let progress = node.progress(20 * S, 60 * S);
    assert!(progress[1] >= 0.02 && progress[0] >= 0.93, "{progress:?}");
}

#[test]
fn a_gang_with_a_small_share_gets_it_beside_another_one() {
    let jobs = [job("a", 0.97, &[0, 1]), job("b", 0.03, &[0, 1])];
    let mut node = Node::new(2, Scheduling::Hardware, &jobs);
    let progress = node.progress(5 * S, 25 * S);
    assert!(progress[1] >= 0.02 && progress[0] >= 0.92, "{progress:?}");
}

/// The clients that are idle are entitled to most of the GPU: a gang gets more than its slot.
#[test]
fn a_gang_gets_its_share_of_what_idle_clients_leave() {
    let idle = Arrivals::Pausing { work_ns: MS, pause_ns: 3_600 * S };
    let jobs = [
        job("a", 0.2, &[0, 1]),
        Job { arrivals: idle, ..job("idle-0", 0.6, &[0]) },
        Job { arrivals: idle, ..job("idle-1", 0.6, &[1]) },
        job("local-0", 0.2, &[0]),
        job("local-1", 0.2, &[1]),
    ];
    let mut node = Node::new(2, Scheduling::Hardware, &jobs);
    let progress = node.progress(5 * S, 25 * S);
    assert!(progress[0] >= 0.35, "{progress:?}");
}
