use super::fixture::{CLIENT, Fixture};
use crate::channel_groups::{ChannelGroupPolicy, ChannelGroupScheduler};
use crate::ledger::{Class, ClientSpec, Policy, TokenLedger};
use crate::processes::stop::is_repeated;
use crate::processes::{
    ClientFacts, Effect, Event, ObstacleKind, ProcessPolicy, Processes, Record, ViolationKind,
};
use crate::share::Share;
use crate::{ConnectionId, ProcessId};
use sluice_comm::Channel;
use std::collections::HashSet;

const S: u64 = 1_000_000_000;

fn table(searches: bool) -> (Processes<(), ()>, TokenLedger) {
    let policy = ProcessPolicy { controls: true, searches, ..ProcessPolicy::default() };
    let mut processes = Processes::new(ChannelGroupScheduler::new(ChannelGroupPolicy::default()), policy);
    let mut ledger = TokenLedger::new(Policy::default());
    let spec = ClientSpec { request: Share::ONE, limit: Share::ONE, class: Class::BestEffort };
    ledger.set_client(CLIENT, spec, 0);
    processes.apply(Event::ClientChanged(CLIENT, ClientFacts { spec, is_pod: true }), &mut ledger, 0);
    (processes, ledger)
}

/// So many processes attach and end at once.
fn attach_and_end(count: i32, processes: &mut Processes<(), ()>, ledger: &mut TokenLedger) {
    for pid in 0..count {
        let id: ProcessId = processes.add(Record::new(CLIENT, Some((pid, 7)), Some(pid), ()));
        let connection = ConnectionId(1);
        processes.apply(Event::ChannelOpened(id, Channel::Token, connection), ledger, 0);
        let closed = Event::ChannelClosed { id, channel: Channel::Token, connection, is_watched: true };
        processes.apply(closed, ledger, 0);
        processes.remove(id, ledger, 0);
    }
}

fn remembered_after(count: i32, searches: bool) -> usize {
    let (mut processes, mut ledger) = table(searches);
    attach_and_end(count, &mut processes, &mut ledger);
    processes.remembered()
}

/// A tenant may attach without end by processes that end at once.
#[test]
fn without_a_search_nothing_is_remembered_of_processes_that_have_gone() {
    assert_eq!(remembered_after(10, false), 0);
}

#[test]
fn number_of_processes_of_which_something_is_remembered_is_bounded() {
    assert_eq!(remembered_after(10, true), 10);
    assert_eq!(remembered_after(5_000, true), 4_096);
}

/// A process that attaches anew after each finding could otherwise do the same again without end, beside a crowd of others.
#[test]
fn finding_is_remembered_however_many_processes_have_attached_and_ended() {
    let (mut processes, mut ledger) = table(true);
    let key = (-1, 7);
    attach_and_end(5_000, &mut processes, &mut ledger);
    let id = processes.add(Record::new(CLIENT, Some(key), None, ()));
    assert!(!is_repeated(&mut processes.history(key).findings, ViolationKind::TimeSlice, None, S));
    processes.remove(id, &mut ledger, S);
    attach_and_end(5_000, &mut processes, &mut ledger);
    processes.add(Record::new(CLIENT, Some(key), None, ()));
    assert!(is_repeated(&mut processes.history(key).findings, ViolationKind::TimeSlice, None, 2 * S));
}

/// A complete search lists attached processes too, so that its list does not say that the process is scheduled.
#[test]
fn process_that_attaches_counts_as_scheduled() {
    let (mut manager, key) = (Fixture::new(), (10, 7));
    manager.inspected(key, Err(ObstacleKind::NotPermitted.because("not permitted")));
    assert_eq!(manager.processes.unscheduled(CLIENT).iter().sum::<u32>(), 1);
    let id = manager.add(key);
    manager.open(id, Channel::Token);
    manager.processes.candidates_listed(&HashSet::from([key]));
    assert_eq!(manager.processes.unscheduled(CLIENT).iter().sum::<u32>(), 0);
}

/// It could otherwise attach and detach without end, each time while a complete search runs.
#[test]
fn process_that_detaches_during_a_complete_search_keeps_its_groups_when_it_attaches_again() {
    let (mut manager, key) = (Fixture::new(), (10, 7));
    let id = manager.add(key);
    let (connection, _) = manager.open(id, Channel::Token);
    manager.processes.begin_search(manager.now);
    manager.close(id, Channel::Token, connection);
    manager.forget(id);
    manager.processes.candidates_listed(&HashSet::from([key]));
    manager.find(key, &[1]);
    let id = manager.processes.find(key).unwrap();
    let (connection, _) = manager.open(id, Channel::Token);
    let effects = manager.close(id, Channel::Token, connection);
    assert!(effects.contains(&Effect::Kept(id)), "{effects:?}");
    assert_eq!(manager.groups(id), [1]);
}
