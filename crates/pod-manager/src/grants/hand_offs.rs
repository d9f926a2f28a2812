//! Hand-offs of the token at known times: the event loop polls around them, and the processes that they concern know them, too.

use super::{Grants, seconds};
use crate::io::Io;
use crate::processes::{Pages, Processes, pages};
use sluice_comm::HandOffStep;
use sluice_core::ProcessId;
use sluice_core::ledger::{GrantRequest, TokenLedger};
use sluice_hook_core::deadline_polling::{DeadlinePolling, Step};
use std::collections::BTreeMap;

/// Clients and processes up to which a hand-off is rehearsed.
const REHEARSED_SIZE: usize = 64;

/// The loop's polling, and what the pages show.
#[derive(Debug)]
pub(crate) struct HandOffs {
    polling: DeadlinePolling,
    around_ns: u64,
    /// The hand-off that was rehearsed last.
    rehearsed: u64,
    /// The times on the pages of processes, where one is shown.
    shown: BTreeMap<ProcessId, u64>,
}

impl HandOffs {
    pub(super) fn new(around_ns: u64) -> Self {
        Self { polling: DeadlinePolling::new(around_ns), around_ns, rehearsed: 0, shown: BTreeMap::new() }
    }

    /// When the token is expected to pass next: `None` unless a client waits for it.
    fn due(&self, ledger: &TokenLedger, now: u64) -> Option<u64> {
        if self.around_ns == 0 || ledger.next_in_line().next().is_none() {
            return None;
        }
        let deadlines = ledger.holders().map(|(_, deadline)| deadline);
        deadlines.filter(|deadline| now < self.polling.end(*deadline)).min()
    }
}

impl Grants {
    /// Whether the loop polls now because a grant is about to be returned and a client waits for it.
    pub(crate) fn polling_step(&mut self, now: u64) -> Step {
        match self.hand_offs.due(&self.ledger, now) {
            Some(due) => {
                let step = self.hand_offs.polling.next(due, now);
                if step == Step::Poll && self.hand_offs.rehearsed != due {
                    self.hand_offs.rehearsed = due;
                    rehearse(&self.ledger, due);
                }
                step
            }
            None => {
                self.hand_offs.polling.stop(now);
                Step::Sleep
            }
        }
    }
}

/// Lets a copy of the ledger decide what it is about to decide. A decision that was made once in 50 ms takes three times as long as one
/// that was just made. A copy of a large ledger would take longer than it spares.
fn rehearse(ledger: &TokenLedger, due: u64) {
    if ledger.size() > REHEARSED_SIZE {
        return;
    }
    let mut copy = ledger.clone();
    let holders: Vec<ProcessId> = copy.members().map(|(process, _)| process).collect();
    for holder in holders {
        let _ = copy.returned(holder, due, 0, 0);
        let _ = copy.request(holder, due, GrantRequest::default());
    }
    std::hint::black_box(copy.advance(due));
}

impl Grants {
    /// What is left of the grant that a process holds, in milliseconds; `None` if it holds none.
    pub(crate) fn quota_left_ms(&self, id: ProcessId, now: u64) -> Option<f64> {
        let held = self.ledger.members().find(|(process, _)| *process == id);
        held.map(|(_, deadline)| seconds(deadline.saturating_sub(now)) * 1e3)
    }

    /// Reads which grants have been returned on the holders' pages; `true` if there is one. Only while the loop polls: the frames follow in
    /// any case.
    pub(crate) fn take_returns(&mut self, processes: &mut Processes, io: &Io) -> bool {
        let mut any = false;
        let members: Vec<ProcessId> = self.ledger.members().map(|(process, _)| process).collect();
        for id in members {
            let pages = processes.get_mut(id).and_then(|process| process.endpoint.pages.as_mut());
            let Some(returned) = pages.and_then(Pages::take_return) else { continue };
            io.record_step(HandOffStep::ReturnRead);
            any = true;
            self.return_grant(id, returned.used_ns, returned.overuse_ns, processes, io.now());
            if let Some(burst_ns) = returned.next_burst_ns {
                let ask = GrantRequest { burst_ns, overuse_ns: returned.overuse_ns };
                // The process is in the ledger: it has just returned a grant.
                let _ = self.ledger.request(id, io.now(), ask);
            }
        }
        any
    }

    /// Shows the holder and the client that is granted next when the token passes, and no longer those that this does not concern any more.
    pub(crate) fn show_hand_off(&mut self, processes: &Processes, now: u64) {
        let Self { ledger, hand_offs, .. } = self;
        let due = hand_offs.due(ledger, now);
        let concerned = due.into_iter().flat_map(|due| {
            let holders = ledger.members().filter(move |(_, deadline)| *deadline == due);
            holders
                .map(|(process, _)| process)
                .chain(ledger.next_in_line())
                .map(move |process| (process, due))
        });
        let shows: BTreeMap<ProcessId, u64> = concerned.collect();
        if hand_offs.shown == shows {
            return;
        }
        for process in hand_offs.shown.keys().filter(|process| !shows.contains_key(process)) {
            if let Some(pages) = pages(processes, *process) {
                pages.grant().set_hand_off(0);
            }
        }
        for (process, due) in &shows {
            if let Some(pages) = pages(processes, *process) {
                pages.grant().set_hand_off(*due);
            }
        }
        hand_offs.shown = shows;
    }
}
