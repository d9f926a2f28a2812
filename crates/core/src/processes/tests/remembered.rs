use crate::channel_groups::{ChannelGroupPolicy, ChannelGroupScheduler};
use crate::ledger::{Class, ClientSpec, Policy, TokenLedger};
use crate::processes::{ClientFacts, Event, ProcessPolicy, Processes, Record};
use crate::share::Share;
use crate::{ClientId, ConnectionId, ProcessId};
use sluice_comm::Channel;

const CLIENT: ClientId = ClientId(1);

/// Processes attach and end at once. Returns the processes of which something is remembered.
fn remembered_after(count: i32, searches: bool) -> usize {
    let policy = ProcessPolicy { controls: true, searches, ..ProcessPolicy::default() };
    let mut processes: Processes<(), ()> =
        Processes::new(ChannelGroupScheduler::new(ChannelGroupPolicy::default()), policy);
    let mut ledger = TokenLedger::new(Policy::default());
    let spec = ClientSpec { request: Share::ONE, limit: Share::ONE, class: Class::BestEffort };
    ledger.set_client(CLIENT, spec, 0);
    processes.apply(Event::ClientChanged(CLIENT, ClientFacts { spec, is_pod: true }), &mut ledger, 0);
    for pid in 0..count {
        let id: ProcessId = processes.add(Record::new(CLIENT, Some((pid, 7)), Some(pid), ()));
        let connection = ConnectionId(1);
        processes.apply(Event::ChannelOpened(id, Channel::Token, connection), &mut ledger, 0);
        let closed = Event::ChannelClosed { id, channel: Channel::Token, connection, is_watched: true };
        processes.apply(closed, &mut ledger, 0);
        processes.remove(id, &mut ledger, 0);
    }
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
