//! The token ledger with a simulated clock.

mod beside;
mod bounded_lag;
mod critical;
mod debts;
mod extensions;
mod gangs;
mod grants;
mod hold_and_wait;
mod levels;
mod limits;
mod processes;
mod properties;
mod replay;
mod shares;
mod simulation;
mod suspension;

use super::{
    Action, Class, ClientSpec, Deadline, GrantEnd, GrantReason, GrantRequest, Policy, ReturnKind, TokenLedger,
};
use crate::ids::{ClientId, ProcessId};
use crate::share::Share;

/// One millisecond in nanoseconds.
const MS: u64 = 1_000_000;
/// One second in nanoseconds.
const S: u64 = 1_000 * MS;

fn share(fraction: f64) -> Share {
    Share::from_fraction(fraction).unwrap()
}

fn spec(request: f64, limit: f64) -> ClientSpec {
    ClientSpec { request: share(request), limit: share(limit), class: Class::BestEffort }
}

/// A ledger with clients 0, 1, ... of these specifications, each with a process of the same number.
fn ledger_of(policy: Policy, specs: &[ClientSpec]) -> TokenLedger {
    let mut ledger = TokenLedger::new(policy);
    for (number, spec) in (0..).zip(specs) {
        ledger.set_client(ClientId(number), *spec, 0);
        ledger.add_process(ProcessId(number), ClientId(number), ReturnKind::Returns).unwrap();
    }
    ledger
}

/// Two clients with requests of 0.3 and 0.5.
fn pair() -> TokenLedger {
    ledger_of(Policy::default(), &[spec(0.3, 1.0), spec(0.5, 1.0)])
}

fn ask(ledger: &mut TokenLedger, process: u64, now: u64) {
    ledger.request(ProcessId(process), now, GrantRequest::default()).unwrap();
}

/// Processes that got a grant, with the deadlines.
fn granted(actions: &[Action]) -> Vec<(u64, Deadline)> {
    let grant = |action: &Action| match action {
        Action::Grant { process, deadline, .. } => Some((process.0, *deadline)),
        _ => None,
    };
    actions.iter().filter_map(grant).collect()
}

/// Grants that ended: client, time held, GPU time charged.
fn ended(actions: &[Action]) -> Vec<(u64, u64, u64)> {
    let end = |action: &Action| match action {
        Action::Ended { client, held_ns, charged_ns, .. } => Some((client.0, *held_ns, *charged_ns)),
        _ => None,
    };
    actions.iter().filter_map(end).collect()
}
