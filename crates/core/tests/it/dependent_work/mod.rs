//! Processes of one client that wait for each other, on the real ledger: no client holds the GPU for longer than a bound while none of its
//! work can run and another client waits. Every program ends.
//!
//! Left out: latency-critical and hardware-scheduled clients, withheld grants, peers whose grants end by timer, processes that die, several
//! threads or streams of a process, grants that the hook returns earlier than after its idle time, and the times that messages take.

mod faults;
mod idle_holders;
mod process;
mod programs;
mod stream;
mod tracker;
mod world;

use idle_holders::not_found_ns;
use programs::{ANY, ClientProgram, FOUND, NOT_FOUND, Shape, Wait};
use proptest::prelude::*;
use sluice_core::ledger::Policy;
use world::World;

const US: u64 = 1_000;
const MS: u64 = 1_000 * US;
const S: u64 = 1_000 * MS;

/// The least part of the time in which a kernel runs while one client always has one, whatever the others do. They hold the GPU for at most
/// [`FOUND_NS`](idle_holders::FOUND_NS) without work. A grant in which a kernel of 50 µs runs may consist of little else. But a client
/// with such grants is granted beside the others from then on.
const LEAST_USE: f64 = 0.9;

/// A fault of the hook or the manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// The tracker does not return the grant of an idle process.
    NoEarlyReturn,
    /// The hook records no event before a command that waits.
    NoEventRecorded,
    /// No page shows that another client wants the GPU.
    ContentionUnreported,
    /// Requests wait while their client holds a grant.
    SiblingsWait,
}

/// Runs the programs to their ends. `Err`: what is wrong.
fn run(programs: &[ClientProgram], fault: Fault) -> Result<World, String> {
    let mut world = World::new(programs, fault);
    world.run(longest_ns(programs))?;
    Ok(world)
}

/// All programs end within this time.
fn longest_ns(programs: &[ClientProgram]) -> u64 {
    let delay_ns = not_found_ns(&Policy::default());
    programs.iter().map(|program| program.longest_ns(delay_ns)).sum()
}

fn check(programs: &[ClientProgram]) -> Result<World, TestCaseError> {
    run(programs, Fault::None).map_err(TestCaseError::fail)
}

proptest! {
    #[test]
    fn programs_end_without_sluice(programs in Shape::of(ANY).clients(2..=4)) {
        let mut world = World::without_grants(&programs);
        world.run(longest_ns(&programs)).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn clients_do_not_hold_the_gpu_while_their_work_waits(programs in Shape::of(FOUND).clients(2..=4)) {
        check(&programs)?;
    }

    #[test]
    fn clients_hold_the_gpu_up_to_the_return_timeout_while_their_kernels_poll(
        programs in Shape::of(ANY).clients(2..=4)
    ) {
        check(&programs)?;
    }

    #[test]
    fn processes_join_the_grant_that_their_own_client_drains(
        ranks in Shape { limits: false, ..Shape::of(NOT_FOUND) }.clients(1..=1),
        others in Shape::of(FOUND).clients(0..=1),
    ) {
        check(&[ranks, others].concat())?;
    }

    /// A client whose processes wait for its limit is not charged for work that waits for them.
    #[test]
    fn processes_alone_wait_for_each_other_no_longer_than_their_limit_demands(
        ranks in Shape::of(NOT_FOUND).clients(1..=1)
    ) {
        let mut world = World::new(&ranks, Fault::None);
        let latest = ranks[0].longest_alone_ns(not_found_ns(&Policy::default()));
        world.run(latest).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn gpu_is_used_while_one_client_always_has_work(
        others in Shape { kernel_ns: 200 * MS, ..Shape::of(&[Wait::Host]) }.clients(1..=3),
        request in 0_u32..=25,
        kernel_ns in MS..20 * MS,
    ) {
        let always = ClientProgram::saturating(request, kernel_ns, 3 * S / kernel_ns);
        let account = check(&[vec![always], others].concat())?.account;
        let part = account.used_ns as f64 / account.first_client_ended.unwrap() as f64;
        prop_assert!(part >= LEAST_USE, "{part:.3} of the time");
    }
}
