use super::*;
use crate::clients::Process;
use crate::connections::ConnectionId;
use crate::io::test_io;
use sluice_core::ledger::Policy;
use sluice_hook_core::deadline_polling::Step;

const MS: u64 = 1_000_000;

#[test]
fn all_unanswered_requests_of_a_process_are_answered_once() {
    let (io, mut processes) = (test_io(), Processes::default());
    let process = Process {
        token: Some(ConnectionId(7)),
        unanswered: vec![1, 2],
        ..Process::new(ClientId(1), "process".into(), None)
    };
    let id = processes.add(process, &io);
    let answered: Vec<i32> = answer_all(id, 50.0, &mut processes)
        .into_iter()
        .filter_map(|effect| match effect {
            Effect::Answer { connection: ConnectionId(7), request, .. } => Some(request),
            _ => None,
        })
        .collect();
    assert_eq!(answered, [1, 2]);
    assert!(answer_all(id, 50.0, &mut processes).is_empty());
}

#[test]
fn loop_does_not_poll_while_no_client_waits() {
    let mut grants = Grants::new(TokenLedger::new(Policy::default()), MS, 10_000 * MS);
    assert_eq!((grants.polling_step(0), grants.ledger.next_deadline()), (Step::Sleep, None));
}
