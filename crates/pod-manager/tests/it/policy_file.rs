//! The policy file changes under a running manager.

use crate::support::agent::Agent;
use crate::support::driver::Call;
use crate::support::group_processes::{process_with_groups, quiet, worked, works};
use crate::support::hook::Hook;
use crate::support::{CLIENTS, MS, World, logs, until};
use std::fs;
use std::path::{Path, PathBuf};

fn grants(first_ms: u64) -> String {
    format!("preemption: {{ scheduling: {{ first_grant_ms: {first_ms} }} }}\n")
}

/// Renames the text into place, so that the manager never reads a part of it.
fn replace(file: &Path, text: &str) {
    let beside = file.with_extension("new");
    fs::write(&beside, text).unwrap();
    fs::rename(beside, file).unwrap();
}

/// A world whose policy file has this text, and the file.
fn world_with(text: &str) -> (World, PathBuf) {
    let world = World::with(CLIENTS, |config| {
        let file = config.socket.with_file_name("policy.yaml");
        fs::write(&file, text).unwrap();
        config.policy_file = Some(file);
    });
    let file = world.config.policy_file.clone().unwrap();
    (world, file)
}

fn reloads(world: &World, outcome: &str) -> f64 {
    world.metric(&format!("sluice_policy_reloads_total{{outcome=\"{outcome}\"}}")).unwrap()
}

fn apply(world: &World, file: &Path, text: &str) {
    let before = reloads(world, "applied");
    replace(file, text);
    until("the policy is applied", || reloads(world, "applied") > before);
}

#[test]
fn policy_file_at_the_start_takes_precedence_over_flags() {
    let (world, _) = world_with(&grants(20));
    assert_eq!(world.config.base_quota.as_millis(), 50);
    let mut a = world.process("be-a");
    a.want();
    assert_eq!(a.granted(), 20.0);
}

#[test]
fn running_grant_keeps_its_deadline_and_the_next_one_follows_the_new_policy() {
    let (world, file) = world_with(&grants(20));
    let (mut a, mut b) = world.holder_and_waiter();
    let deadline = a.page().deadline_ns();
    apply(&world, &file, &grants(70));
    assert_eq!(a.page().deadline_ns(), deadline);
    world.advance(20 * MS);
    a.give_back(20.0);
    assert_eq!(b.granted(), 70.0);
}

#[test]
fn policy_with_mistakes_changes_nothing_and_is_counted() {
    logs::collect();
    let (world, file) = world_with(&grants(20));
    replace(
        &file,
        "preemption:\n  scheduling:\n    first_grant_ms: 70\n    quantum_ms: 7\n  enabled: true\n",
    );
    until("the mistakes are counted", || reloads(&world, "refused") == 1.0);
    let line = logs::lines_with(&["policy file is not applied", "the previous policy stays", "2 mistakes"]);
    assert_eq!(line.len(), 1);
    let mut a = world.process("be-a");
    a.want();
    assert_eq!(a.granted(), 20.0);
    // The next right one is applied.
    apply(&world, &file, &grants(30));
    a.give_back(1.0);
    a.want();
    assert_eq!(a.granted(), 30.0);
}

#[test]
fn agent_reads_how_often_a_policy_was_applied_and_refused() {
    let world = World::for_agent(|config| {
        let file = config.socket.with_file_name("policy.yaml");
        fs::write(&file, grants(20)).unwrap();
        config.policy_file = Some(file);
    });
    let file = world.config.policy_file.clone().unwrap();
    let mut agent = Agent::connect(&world);
    for first_ms in [30, 40] {
        apply(&world, &file, &grants(first_ms));
    }
    replace(&file, "preemption: 7\n");
    until("the mistake is counted", || reloads(&world, "refused") == 1.0);
    let expected = [("applied".to_owned(), 2), ("refused".to_owned(), 1)];
    assert_eq!(agent.snapshot().policy_reloads, expected.into());
}

#[test]
fn manager_does_not_start_with_a_wrong_policy_file() {
    let (mut world, file) = world_with("");
    world.stop();
    fs::write(&file, "preemption:\n  power: low\n").unwrap();
    let error = sluice_pod_manager::start(world.config.clone()).unwrap_err().to_string();
    let expected = format!("policy file {}: 1 mistake\n  line 2, preemption.power: ", file.display());
    assert!(error.starts_with(&expected), "{error}");
    fs::remove_file(&file).unwrap();
    let error = sluice_pod_manager::start(world.config.clone()).unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot read policy file {}: ", file.display())), "{error}");
    fs::write(&file, "").unwrap();
    world.start();
}

#[test]
fn groups_get_the_slices_of_the_new_policy() {
    let slices = |be, lc| format!("preemption: {{ timeslice: {{ be_task_us: {be}, lc_task_us: {lc} }} }}\n");
    let (world, file) = world_with(&slices(200, 500_000));
    let (be, _be) = process_with_groups(&world, "be-a", &[1]);
    works(&world, &be);
    let (lc, _lc) = process_with_groups(&world, "lc", &[3]);
    worked(&world, &lc);
    assert_eq!((world.driver.group(1), world.driver.group(3)), ((true, 200), (true, 500_000)));
    world.driver.take_calls();
    apply(&world, &file, &slices(2000, 500_000));
    quiet(&world);
    assert_eq!(world.driver.take_calls(), [Call::Slice(1, 2000)]);
}

/// Two clients pass the token on while the policy changes a thousand times, in each of its settings. Every request is granted, every
/// grant lasts as long as it was given, and at most one client holds one.
#[test]
fn thousand_reloads_under_load_lose_no_grant() {
    const RELOADS: u64 = 1000;
    let policy = |round: u64| {
        let (first, longest) = (20 + round % 50, 100 + round % 7);
        format!(
            "preemption:\n  timeslice: {{ be_task_us: {}, lc_task_us: {} }}\n  scheduling: {{ first_grant_ms: {first}, \
             longest_grant_ms: {longest}, quantum_ms: {}, short_pause_ms: {}, return_timeout_ms: {} }}\n",
            1 + round % 1500,
            1000 + round * 900,
            30 + round % 70,
            round % 200,
            2000 + round,
        )
    };
    let (world, file) = world_with(&policy(0));
    let (a, b) = world.holder_and_waiter();
    let mut hooks = [a, b];
    // Slices change beside a latency-critical process.
    let (lc, _lc) = process_with_groups(&world, "lc", &[3]);
    worked(&world, &lc);
    for round in 1..=RELOADS {
        let before = holder(&hooks);
        let deadline = hooks[before].page().deadline_ns();
        apply(&world, &file, &policy(round));
        assert_eq!(hooks[before].page().deadline_ns(), deadline, "round {round}");
        assert_eq!(holder(&hooks), before, "round {round}");
        // The holder returns its grant at the deadline or earlier.
        let left = deadline - world.clock.now();
        world.advance(if round % 2 == 0 { left } else { left / 2 });
        hooks[before].give_back(1.0);
        hooks[before].want();
        world.settle();
        let next = holder(&hooks);
        assert_eq!(hooks[next].granted(), (20 + round % 50) as f64, "round {round}");
    }
    assert_eq!((reloads(&world, "applied"), reloads(&world, "refused")), (RELOADS as f64, 0.0));
    let total = |series: &str| {
        ["be-a", "be-b"]
            .iter()
            .map(|client| world.metric(&format!("{series}{{client=\"{client}\"}}")).unwrap())
            .sum::<f64>()
    };
    assert_eq!(total("sluice_grants_not_returned_total"), 0.0);
    assert_eq!(total("sluice_grants_total"), (RELOADS + 1) as f64);
}

/// The only one that holds a grant.
fn holder(hooks: &[Hook; 2]) -> usize {
    let holders = hooks.each_ref().map(|hook| hook.page().deadline_ns() > 0);
    assert!(holders[0] != holders[1], "{holders:?} hold a grant");
    usize::from(holders[1])
}
