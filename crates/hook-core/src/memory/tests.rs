use super::*;
use crate::fakes::FakeMemory;
use crate::outcome::Bypass;

fn account(limit: u64, fail_closed: bool) -> MemoryAccount<FakeMemory> {
    MemoryAccount::new(FakeMemory::new(limit), fail_closed)
}

#[test]
fn limit_is_exact_to_the_byte() {
    let memory = account(100, false);
    assert_eq!(memory.reserve(60), Outcome::Governed(()));
    assert_eq!(memory.reserve(41), Outcome::Refused);
    assert_eq!(memory.reserve(40), Outcome::Governed(()));
    memory.release(40);
    assert_eq!(memory.usage(), Some((60, 100)));
}

#[test]
fn returned_manager_is_told_what_is_in_use() {
    let memory = account(100, false);
    memory.reserve(60);
    memory.link.die();
    memory.release(10);
    assert_eq!(memory.reserve(5), Outcome::Bypassed(Bypass::ManagerGone));
    memory.link.return_empty();
    memory.reattach_if_lost();
    assert_eq!(memory.usage(), Some((55, 100)));
}

#[test]
fn manager_that_was_silent_is_told_that_a_process_has_freed_all() {
    let memory = account(100, false);
    memory.reserve(60);
    memory.link.set_silent(true);
    memory.release(60);
    memory.link.set_silent(false);
    memory.reattach_if_lost();
    assert!(memory.link.is_alive());
    assert_eq!(memory.link.usage(), Ok((0, 100)));
}

#[test]
fn process_without_memory_does_not_connect_again_once_the_manager_knows() {
    let memory = account(100, false);
    memory.link.set_silent(true);
    memory.release(60);
    memory.link.set_silent(false);
    memory.reattach_if_lost();
    memory.link.die();
    memory.link.return_empty();
    let attempts = memory.link.attempts.load(SeqCst);
    memory.reattach_if_lost();
    assert_eq!(memory.link.attempts.load(SeqCst), attempts);
}

#[test]
fn last_limit_applies_without_a_manager() {
    let memory = account(100, false);
    memory.reserve(60);
    memory.link.die();
    assert_eq!(memory.reserve(41), Outcome::Refused);
    assert_eq!(memory.reserve(40), Outcome::Bypassed(Bypass::ManagerGone));
}

#[test]
fn last_limit_is_what_a_program_sees_without_a_manager() {
    let memory = account(100, false);
    assert_eq!(memory.usage(), Some((0, 100)));
    memory.reserve(60);
    memory.link.die();
    memory.reserve(10);
    assert_eq!(memory.usage(), Some((70, 100)));
    memory.release(20);
    assert_eq!(memory.usage(), Some((50, 100)));
}

#[test]
fn last_limit_is_what_a_program_sees_of_a_silent_manager() {
    let memory = account(100, false);
    memory.reserve(60);
    memory.link.set_silent(true);
    assert_eq!(memory.usage(), Some((60, 100)));
}

#[test]
fn without_any_manager_no_limit_is_seen() {
    let memory = account(100, false);
    memory.link.die();
    assert_eq!(memory.usage(), None);
}

#[test]
fn allocation_without_any_manager_passes_or_is_refused_as_configured() {
    let open = account(100, false);
    open.link.die();
    assert_eq!(open.reserve(1_000_000), Outcome::Bypassed(Bypass::ManagerGone));
    let closed = account(100, true);
    closed.link.die();
    assert_eq!(closed.reserve(1), Outcome::Refused);
}

#[test]
fn a_program_sees_its_limit_and_what_is_left_of_it() {
    assert_eq!(visible_memory(3, 10, 100, 1000), (7, 10));
    assert_eq!(visible_memory(3, 10, 5, 1000), (5, 10), "no more than the GPU has");
    assert_eq!(visible_memory(30, 10, 100, 1000), (0, 10), "used beyond the limit does not wrap");
    assert_eq!(visible_memory(3, 5000, 100, 1000), (100, 1000), "a limit above the GPU is the GPU");
}

#[test]
fn allocation_waits_for_a_silent_manager_once_and_is_reported_when_it_runs_again() {
    let memory = account(100, false);
    memory.reserve(60);
    memory.link.set_silent(true);
    assert_eq!(memory.reserve(30), Outcome::Bypassed(Bypass::ManagerGone));
    assert_eq!(memory.link.unanswered.load(SeqCst), 1, "no second attempt");
    assert_eq!(memory.reserve(11), Outcome::Refused, "the last limit applies");
    memory.link.set_silent(false);
    memory.reattach_if_lost();
    assert_eq!(memory.usage(), Some((90, 100)));
}

#[test]
fn first_allocation_passes_a_silent_manager() {
    let memory = account(100, false);
    memory.link.set_silent(true);
    assert_eq!(memory.reserve(30), Outcome::Bypassed(Bypass::ManagerGone));
    memory.link.set_silent(false);
    memory.reattach_if_lost();
    assert_eq!(memory.usage(), Some((30, 100)));
}

#[test]
fn allocation_is_refused_while_the_manager_has_no_room() {
    let memory = account(100, false);
    memory.link.full.store(true, SeqCst);
    assert_eq!(memory.reserve(1), Outcome::Refused);
    assert_eq!(memory.link.attempts.load(SeqCst), 1, "a second attempt finds no room either");
    memory.link.full.store(false, SeqCst);
    assert_eq!(memory.reserve(60), Outcome::Governed(()));
    // The last limit is the client's, whose other processes the manager has admitted meanwhile.
    memory.link.die();
    memory.link.full.store(true, SeqCst);
    assert_eq!(memory.reserve(1), Outcome::Refused);
}

#[test]
fn nvml_shows_limit_and_use_of_the_client_which_add_up() {
    assert_eq!(visible_use(30, 100, 1000), Some((100, 70, 30)));
    assert_eq!(visible_use(130, 100, 1000), Some((100, 0, 100)), "a limit that was lowered below the use");
    assert_eq!(visible_use(30, 1000, 1000), None, "no limit");
    assert_eq!(visible_use(30, u64::MAX, 1000), None, "no limit");
}

#[test]
fn processes_of_the_client_are_known_only_while_the_manager_answers() {
    let memory = account(100, false);
    assert_eq!((memory.owns_process(7), memory.owns_process(8)), (Some(true), Some(false)));
    memory.link.die();
    assert_eq!(memory.owns_process(7), None);
}

#[test]
fn first_answer_of_a_process_with_a_context_waits_for_one_reservation() {
    let memory = account(100, false);
    assert_eq!(memory.usage(), Some((0, 100)));
    assert_eq!(memory.link.reservations(), [], "a process without a context waits for nothing");
    assert_eq!(memory.usage_with_context(), Some((0, 100)));
    assert_eq!(memory.usage_with_context(), Some((0, 100)));
    assert_eq!(memory.link.reservations(), [0]);
    memory.link.die();
    memory.link.return_empty();
    assert_eq!(memory.usage_with_context(), Some((0, 100)));
    assert_eq!(memory.link.reservations(), [0, 0], "the next manager has read nothing yet");
    memory.link.die();
    memory.link.return_empty();
    memory.reserve(60);
    assert_eq!(memory.usage_with_context(), Some((60, 100)));
    assert_eq!(memory.link.reservations(), [0, 0, 60]);
}
