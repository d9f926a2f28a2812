use crate::channel_groups::{ChannelGroupPolicy, ChannelGroupScheduler};
use crate::ledger::{Class, ClientSpec, Policy, TokenLedger};
use crate::processes::stop::is_repeated;
use crate::processes::{ClientFacts, Event, ProcessPolicy, Processes, Record, ViolationKind};
use crate::share::Share;
use crate::{ClientId, ConnectionId, ProcessId};
use sluice_comm::Channel;

const CLIENT: ClientId = ClientId(1);
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
