//! Extension of grants for which no other client waits.

use super::*;
use crate::quota::QuotaPolicy;

/// New deadlines of extended grants.
fn extensions(actions: &[Action]) -> Vec<(u64, u64)> {
    let extension = |action: &Action| match action {
        Action::Extend { process, deadline, .. } => Some((process.0, *deadline)),
        _ => None,
    };
    actions.iter().filter_map(extension).collect()
}

/// Advances to each of the ledger's deadlines from `now` to `end`. Returns every extension.
fn follow(ledger: &mut TokenLedger, now: u64, end: u64) -> Vec<(u64, u64)> {
    let mut found = extensions(&ledger.advance(now));
    while let Some(next) = ledger.next_deadline().filter(|next| *next <= end) {
        found.extend(extensions(&ledger.advance(next)));
    }
    found
}

#[test]
fn grant_of_a_client_alone_is_extended_up_to_the_longest_total() {
    let mut ledger = pair();
    ask(&mut ledger, 0, 0);
    let found = follow(&mut ledger, 0, 2 * S);
    assert_eq!(found.first(), Some(&(0, 100 * MS)), "50 ms more, 5 ms before the first 50 end");
    assert_eq!(found.last(), Some(&(0, 2 * S)));
    assert_eq!(found.len(), 39);
}

#[test]
fn short_base_quota_is_added_once_at_a_time() {
    let quota = QuotaPolicy { base_ns: 2 * MS, min_ns: MS, ..QuotaPolicy::default() };
    let mut ledger = ledger_of(Policy { quota, ..Policy::default() }, &[spec(0.3, 1.0), spec(0.5, 1.0)]);
    ask(&mut ledger, 0, 0);
    assert_eq!(follow(&mut ledger, 0, 0), []);
    assert_eq!(follow(&mut ledger, MS, MS), [(0, 4 * MS)]);
}

#[test]
fn grant_is_not_extended_while_another_client_waits() {
    let mut ledger = pair();
    ask(&mut ledger, 0, 0);
    ask(&mut ledger, 1, 40 * MS);
    assert_eq!(follow(&mut ledger, 40 * MS, 49 * MS), []);
    ledger.returned(ProcessId(0), 50 * MS, 50 * MS, 0).unwrap();
    assert_eq!(granted(&ledger.advance(50 * MS)), [(1, Deadline::At(100 * MS))]);
}

#[test]
fn grant_of_a_limited_client_is_not_extended() {
    let mut ledger = ledger_of(Policy::default(), &[spec(0.3, 0.9)]);
    ask(&mut ledger, 0, 0);
    assert_eq!(follow(&mut ledger, 0, S), []);
}

#[test]
fn extended_grant_is_charged_in_full_when_it_ends() {
    let mut ledger = pair();
    ask(&mut ledger, 0, 0);
    follow(&mut ledger, 0, 900 * MS);
    ledger.returned(ProcessId(0), 900 * MS, 880 * MS, 0).unwrap();
    assert_eq!(ended(&ledger.advance(900 * MS)), [(0, 900 * MS, 880 * MS)]);
}

#[test]
fn client_whose_grant_was_extended_is_not_starved_afterwards() {
    let mut ledger = ledger_of(Policy::default(), &[spec(0.3, 1.0), spec(0.7, 1.0)]);
    ask(&mut ledger, 0, 0);
    follow(&mut ledger, 0, 1_900 * MS);
    // From here on both always have work and use their grants to the deadline.
    ask(&mut ledger, 1, 1_901 * MS);
    let (mut began, mut left, mut stall) = (0, 0, 0);
    while left < 12 * S {
        let Some((holder, deadline)) = ledger.holders().next() else { panic!("no client holds a grant") };
        if holder == ClientId(0) {
            stall = stall.max(began - left);
            left = deadline;
        }
        ledger.returned(ProcessId(holder.0), deadline, deadline - began, 0).unwrap();
        ask(&mut ledger, holder.0, deadline);
        ledger.advance(deadline);
        began = deadline;
    }
    assert!(stall < 500 * MS, "client 0 waited for {} ms", stall / MS);
}

#[test]
fn usage_includes_the_running_grant() {
    let mut ledger = pair();
    ask(&mut ledger, 0, 0);
    follow(&mut ledger, 0, 1_900 * MS);
    assert_eq!(ledger.usage(ClientId(0), 1_900 * MS).unwrap().running_ns, 1_900 * MS);
}

/// A client of two processes, and another client.
fn relay() -> TokenLedger {
    let mut ledger = ledger_of(Policy::default(), &[spec(0.3, 1.0), spec(0.7, 1.0)]);
    ledger.add_process(ProcessId(7), ClientId(0), ReturnKind::Returns).unwrap();
    ledger
}

/// Its work on the GPU may wait for work of the process that asks.
#[test]
fn grant_goes_on_for_a_process_that_asks_while_another_one_of_its_client_drains() {
    let mut ledger = relay();
    ask(&mut ledger, 0, 0);
    let found = follow(&mut ledger, 0, 2_100 * MS);
    assert_eq!(found.last(), Some(&(0, 2 * S)), "process 0 has not returned its grant of 2 s");
    ask(&mut ledger, 7, 2_100 * MS);
    let actions = ledger.advance(2_100 * MS);
    assert_eq!(granted(&actions), [(7, Deadline::At(2_150 * MS))]);
    assert_eq!(extensions(&actions), [(0, 2_150 * MS)]);
    assert_eq!(ledger.next_deadline(), Some(4_150 * MS), "both have two seconds to return it");
}

#[test]
fn waiting_process_of_the_same_client_does_not_end_the_extensions() {
    let mut ledger = relay();
    ask(&mut ledger, 0, 0);
    assert_eq!(follow(&mut ledger, 0, 45 * MS), [(0, 100 * MS)]);
    // Too little is left to join.
    ask(&mut ledger, 7, 94 * MS + 500_000);
    assert_eq!(granted(&ledger.advance(94 * MS + 500_000)), [(7, Deadline::At(100 * MS))]);
    assert_eq!(follow(&mut ledger, 95 * MS, 95 * MS), [(0, 150 * MS), (7, 150 * MS)]);
}

#[test]
fn grant_ends_for_another_client_although_a_process_of_its_own_asks() {
    let mut ledger = relay();
    ask(&mut ledger, 0, 0);
    follow(&mut ledger, 0, 40 * MS);
    ask(&mut ledger, 1, 41 * MS);
    ask(&mut ledger, 7, 49 * MS + 500_000);
    let actions = ledger.advance(49 * MS + 500_000);
    assert_eq!((granted(&actions), extensions(&actions)), (vec![], vec![]));
    ledger.returned(ProcessId(0), 50 * MS, 50 * MS, 0).unwrap();
    assert_eq!(granted(&ledger.advance(50 * MS)), [(1, Deadline::At(100 * MS))]);
}

/// It would otherwise wait for as long as a grant is extended.
#[test]
fn waiting_process_whose_part_ends_by_timer_ends_the_extensions() {
    let mut ledger = ledger_of(Policy::default(), &[spec(0.3, 1.0)]);
    ledger.add_process(ProcessId(7), ClientId(0), ReturnKind::ByTimer).unwrap();
    ask(&mut ledger, 0, 0);
    ledger.advance(0);
    ledger.request(ProcessId(7), 10 * MS, GrantRequest { burst_ns: S, overuse_ns: 0 }).unwrap();
    assert_eq!(follow(&mut ledger, 10 * MS, 50 * MS), []);
    ledger.returned(ProcessId(0), 50 * MS, 50 * MS, 0).unwrap();
    let actions = ledger.advance(50 * MS);
    assert_eq!(granted(&actions).iter().map(|(process, _)| *process).collect::<Vec<_>>(), [7]);
}
