//! When latency-critical clients are delayed.
//!
//! A client is delayed in two cases. It has used up its limit, apart from one request's burst. Or it has used more than its
//! request, and another client is behind its own request by more than
//! [`Policy::critical_lag_ns`](super::Policy::critical_lag_ns). Its unlimited grants are revoked then and granted again
//! later. Work that it has submitted runs on and is charged.

use super::client::Client;
use super::critical::{Cause, Entry};
use super::{Action, GrantEnd, TokenLedger};
use crate::gangs::{CYCLE_NS, Window};
use crate::ids::{ClientId, ProcessId};
use crate::limit_bucket::LimitBucket;
use crate::share::Share;
use std::collections::BTreeSet;

/// A delay by the limit or beyond the request ends when this much GPU time has been earned: shorter ones would consist of
/// revoking and granting.
const RESUME_NS: u64 = 10_000_000;
/// A delay in favour of a client that lags ends when its lag is this much below the bound. Each delay costs two context
/// switches of 0.19 ms.
const RESUME_LAG_NS: u64 = 30_000_000;
/// How often a busy client that can be delayed is checked.
const CHECK_NS: u64 = 5_000_000;
/// The same for one that was not charged for this long.
const IDLE_CHECK_NS: u64 = 50_000_000;

impl TokenLedger {
    /// Delays and resumes latency-critical clients.
    pub(super) fn check_delays(&mut self, now: u64) {
        let ids: Vec<ClientId> = self.critical.entries.keys().copied().collect();
        let mut next = None;
        for id in ids {
            let (Some(entry), Some(client)) = (self.critical.entries.get(&id), self.clients.get(&id)) else {
                continue;
            };
            let window = self.window_of(id, now);
            let cause = match window {
                Some(window) => self.cause_in_gang(entry, client, window, now),
                None => self.cause_of_delay(entry, client, now),
            };
            let before = entry.delayed;
            if let Some(entry) = self.critical.entries.get_mut(&id) {
                entry.in_window = window.is_some_and(|window| window.is_open);
                // The ledger may go on delaying the client for another reason.
                entry.delayed = before.and(cause);
            }
            match (before, cause) {
                (None, Some(cause)) => self.delay(id, cause, now),
                (Some(_), None) => self.resume(id, now),
                _ => {}
            }
            next = next.into_iter().chain(self.next_check(id, now)).min();
        }
        self.critical.check_at = next;
    }

    /// The window of a client in a gang.
    fn window_of(&self, id: ClientId, now: u64) -> Option<Window> {
        let client = self.clients.get(&id).filter(|_| self.slots.is_critical(id))?;
        Window::at(now, client.spec.request.of(CYCLE_NS))
    }

    /// A client in a gang is delayed from the end of a window to the beginning of the next, so that all of its GPUs do it at once.
    fn cause_in_gang(&self, entry: &Entry, client: &Client, window: Window, now: u64) -> Option<Cause> {
        if window.is_open || !entry.in_window {
            return entry.delayed.filter(|_| !window.is_open);
        }
        self.cause_of_delay(entry, client, now)
    }

    fn cause_of_delay(&self, entry: &Entry, client: &Client, now: u64) -> Option<Cause> {
        let earned = |bucket: &LimitBucket| bucket.left_ns(now) >= RESUME_NS;
        // The whole GPU is no limit. Two processes that report the same time late would exceed it.
        let limited = client.spec.limit != Share::ONE
            && match entry.delayed {
                Some(Cause::Limit) => !earned(&client.limit),
                _ => client.limit.is_overdrawn(now),
            };
        if limited {
            return Some(Cause::Limit);
        }
        let beyond_request = match entry.delayed {
            Some(Cause::Lag) => !earned(&entry.request),
            _ => entry.request.is_overdrawn(now),
        };
        let bound = match entry.delayed {
            Some(Cause::Lag) => self.policy.critical_lag_ns.saturating_sub(RESUME_LAG_NS),
            _ => self.policy.critical_lag_ns,
        };
        (beyond_request && self.another_client_lags(bound, now)).then_some(Cause::Lag)
    }

    /// Whether a client that waits for grants or holds one is behind its request by more than `bound_ns`. It is never behind
    /// by more than its limit allows it to run.
    fn another_client_lags(&self, bound_ns: u64, now: u64) -> bool {
        let competes = |client: &Client| !client.is_critical() && client.idle_since.is_none();
        self.clients.iter().filter(|(_, client)| competes(client)).any(|(id, client)| {
            let running = self.running_ns(*id, now);
            let allowed = client.limit.left_ns(now).saturating_sub(running);
            allowed > bound_ns && client.lag.exceeds(&client.spec, running, bound_ns, now)
        })
    }

    /// When to check a client again: `None` if it can only be delayed or resumed after another event.
    fn next_check(&self, id: ClientId, now: u64) -> Option<u64> {
        let (entry, client) = (self.critical.entries.get(&id)?, self.clients.get(&id)?);
        if client.processes.is_empty() {
            return None;
        }
        if let Some(window) = self.window_of(id, now) {
            return Some(window.until);
        }
        let poll =
            now + if now.saturating_sub(entry.charged_at) < IDLE_CHECK_NS { CHECK_NS } else { IDLE_CHECK_NS };
        match entry.delayed {
            Some(Cause::Limit) => Some(client.limit.holds_at(RESUME_NS, now)?.max(now + 1)),
            Some(Cause::Lag) => Some(now + CHECK_NS),
            None => {
                let limit = self.is_limited(id).then(|| client.limit.left_ns(now));
                let others = !self.queue.is_empty() || !self.grants.is_empty();
                let request = others.then(|| entry.request.left_ns(now));
                let left = limit.into_iter().chain(request).min()?;
                Some(poll.max(now.saturating_add(left)))
            }
        }
    }

    fn delay(&mut self, id: ClientId, cause: Cause, now: u64) {
        let Some(entry) = self.critical.entries.get_mut(&id) else { return };
        entry.delayed = Some(cause);
        let processes: BTreeSet<ProcessId> =
            self.clients.get(&id).map(|c| c.processes.clone()).unwrap_or_default();
        for process_id in processes {
            let Some(process) = self.processes.get_mut(&process_id) else { continue };
            if std::mem::take(&mut process.unlimited) {
                self.critical.waits(process_id, now);
                self.actions.push(Action::Revoke { process: process_id, reason: GrantEnd::Delayed });
            }
        }
    }

    fn resume(&mut self, id: ClientId, now: u64) {
        let Some(entry) = self.critical.entries.get_mut(&id) else { return };
        entry.delayed = None;
        let Some(client) = self.clients.get_mut(&id) else { return };
        // Processes that requested by themselves have work that waited. The others only lost their grants.
        let requested =
            client.processes.iter().filter(|p| self.processes.get(p).is_some_and(|p| p.requested));
        let since = requested.filter_map(|process| self.critical.waiting.get(process)).min();
        if let Some(since) = since {
            client.delayed_ns = client.delayed_ns.saturating_add(now.saturating_sub(*since));
        }
    }
}
