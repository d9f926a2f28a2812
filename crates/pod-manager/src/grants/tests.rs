use super::*;
use crate::processes::{Endpoint, Process};
use sluice_core::channel_groups::{ChannelGroupPolicy, ChannelGroupScheduler};
use sluice_core::ledger::Policy;
use sluice_core::processes::ProcessPolicy;
use sluice_hook_core::deadline_polling::Step;

const MS: u64 = 1_000_000;

#[test]
fn all_unanswered_requests_of_a_process_are_answered_once() {
    let scheduler = ChannelGroupScheduler::new(ChannelGroupPolicy::default());
    let mut processes = Processes::new(scheduler, ProcessPolicy::default());
    let endpoint = Endpoint { unanswered: vec![1, 2], ..Endpoint::default() };
    let mut process = Process::new(ClientId(1), None, None, endpoint);
    process.token = Some(ConnectionId(7));
    let id = processes.add(process);
    let answers = answer_all(id, 50.0, &mut processes);
    let answered: Vec<_> = answers.into_iter().map(|answer| (answer.connection, answer.request)).collect();
    assert_eq!(answered, [(ConnectionId(7), 1), (ConnectionId(7), 2)]);
    assert!(answer_all(id, 50.0, &mut processes).is_empty());
}

#[test]
fn loop_does_not_poll_while_no_client_waits() {
    let mut grants = Grants::new(TokenLedger::new(Policy::default()), MS, 10_000 * MS);
    assert_eq!((grants.polling_step(0), grants.ledger.next_deadline()), (Step::Sleep, None));
}
