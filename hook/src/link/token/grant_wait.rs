//! How the thread that requested a grant waits for it: by polling the page around the time at which it is due, otherwise asleep.

use std::cell::Cell;
use std::sync::atomic::Ordering::*;

use sluice_comm::HandOffStep;
use sluice_comm::page::NO_GRANT;
use sluice_hook_core::deadline_polling::Step;
use sluice_hook_core::lock;
use sluice_hook_core::platform::{Clock, TokenLink};

use super::super::address::Address;
use super::super::answer_wait::Wait;
use super::TokenConnection;
use crate::clock::HostClock;

impl TokenConnection {
    /// The next step of a wait for a grant. One thread at a time waits.
    pub(super) fn step_of_wait(&self, begun_ns: u64, now: u64) -> Step {
        let mut polling = lock(&self.answer_polling);
        // A holder that does not return its grant in time may be followed by another one.
        match self.hand_off_ns() {
            due if now < polling.end(due) => polling.next(due, now),
            _ if matches!(self.address, Address::Tcp(..)) => Step::Sleep,
            _ => polling.look(begun_ns, now),
        }
    }
}

/// How the thread that waits for a grant waits.
pub(super) struct GrantWait<'c> {
    pub(super) connection: &'c TokenConnection,
    pub(super) begun_ns: u64,
    pub(super) prepare: &'c dyn Fn(),
    pub(super) polls: Cell<bool>,
}

impl Wait for GrantWait<'_> {
    fn next_step(&self, now_ns: u64) -> Step {
        let step = self.connection.step_of_wait(self.begun_ns, now_ns);
        if step == Step::Poll && !self.polls.replace(true) {
            HostClock.record_step(HandOffStep::LaunchPolls);
            (self.prepare)();
        }
        step
    }

    /// The manager shows a grant before it sends the answer.
    fn has_come(&self) -> bool {
        let shown = self.connection.grant_view().try_grant();
        shown.is_some_and(|grant| {
            grant.deadline_ns != NO_GRANT && grant.epoch != self.connection.epoch_before.load(Relaxed)
        })
    }
}
