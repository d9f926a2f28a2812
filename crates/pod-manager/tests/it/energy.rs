//! The energy of the GPU is attributed to clients.

use crate::support::agent::{Agent, pod, uid};
use crate::support::hook::Hook;
use crate::support::memory::FakeMemory;
use crate::support::{MS, World, until};
use sluice_proto::control::ReportMemoryRequest;

/// Waits until the results of all readings that the driver has begun are in force.
fn settle(world: &World, driver: &FakeMemory) {
    let applied = || world.metric("sluice_memory_readings_total{outcome=\"complete\"}").unwrap();
    until("the readings are in force", || applied() == driver.readings() as f64);
}

/// Lets the time of the next reading come, and waits until its result is in force.
fn read(world: &World, driver: &FakeMemory) {
    settle(world, driver);
    let before = driver.readings();
    world.advance(400 * MS);
    until("a reading", || driver.readings() > before);
    settle(world, driver);
}

fn joules(world: &World, client: &str) -> f64 {
    world.metric(&format!("sluice_energy_joules_total{{client=\"{client}\"}}")).unwrap()
}

/// Executes for so long.
fn work(world: &World, hook: &mut Hook, ms: u64) {
    hook.want();
    hook.granted();
    hook.report().add_busy_ns(ms * MS);
    world.advance(ms * MS);
    hook.give_back(ms as f64);
    world.settle();
}

#[test]
fn energy_beyond_that_of_the_idle_gpu_is_divided_by_execution_time() {
    let (mut world, driver) = (World::new(), FakeMemory::default());
    world.stop();
    world.memory = Some(driver.clone());
    world.start();
    driver.set_energy(7_000_000);
    let (mut a, mut b) = (world.process("be-a"), world.process("be-b"));
    world.settle();
    settle(&world, &driver);
    // 100 W.
    for energy_mj in [7_040_000, 7_080_000] {
        driver.set_energy(energy_mj);
        read(&world, &driver);
    }
    let idle = || world.metric("sluice_idle_energy_joules_total").unwrap();
    let first = idle();
    assert!(first > 0.0 && joules(&world, "be-a") == 0.0, "{first}");
    work(&world, &mut a, 20);
    work(&world, &mut b, 60);
    // 300 W for 480 ms.
    driver.set_energy(7_224_000);
    read(&world, &driver);
    let parts = [idle() - first, joules(&world, "be-a"), joules(&world, "be-b")];
    for (part, expected) in parts.iter().zip([48.0, 24.0, 72.0]) {
        assert!((part - expected).abs() < 0.01, "{parts:?}");
    }
    assert_eq!(joules(&world, "lc"), 0.0);
}

#[test]
fn energy_that_the_agent_reads_is_attributed_and_returned_to_it() {
    let world = World::for_agent(|_| ());
    let mut agent = Agent::connect(&world);
    agent.set(&[pod(&uid(1))]);
    let mut hook = world.process_of(&uid(1));
    let mut report = |energy_mj| {
        world.advance(500 * MS);
        agent.report_memory(ReportMemoryRequest { energy_mj, ..ReportMemoryRequest::default() });
        agent.snapshot()
    };
    report(Some(1_000));
    report(Some(51_000));
    work(&world, &mut hook, 100);
    let snapshot = report(Some(171_000));
    let parts = [snapshot.idle_energy_joules, snapshot.clients[0].energy_joules];
    assert!((parts[0] - 110.0).abs() < 0.1 && (parts[1] - 60.0).abs() < 0.1, "{parts:?}");
    // A driver that does not count energy changes nothing.
    assert_eq!(report(None).clients[0].energy_joules, parts[1]);
}
