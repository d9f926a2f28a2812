//! Processes announce their groups, and leave.

use super::activity::Activity;
use super::control::GroupId;
use super::process::{Process, Turn};
use super::steer::Steering;
use crate::ids::{ClientId, ProcessId};
use crate::ledger::{Class, PeerKind, TokenLedger};
use std::collections::BTreeSet;

impl Steering {
    /// A process announces its groups: all that it has, in place of those it announced before. Latency-critical processes
    /// are announced even if they have none that can be controlled; best-effort ones without are not steered. `false` if
    /// the process is not steered; its groups are released then. How a group is, is taken to be known still if it is the process's
    /// and among those that have `stayed`.
    pub fn announce(
        &mut self,
        id: ProcessId,
        (client, class): (ClientId, Class),
        (groups, stayed): (Vec<GroupId>, &BTreeSet<GroupId>),
        tokens: &mut TokenLedger,
        now: u64,
    ) -> bool {
        let refused = self.given_up.contains(&client) || groups.is_empty();
        let stays = |group: &GroupId| stayed.contains(group) && self.owns(id, *group);
        let doubtful: Vec<GroupId> = groups.iter().copied().filter(|group| !stays(group)).collect();
        self.let_go(id, &groups);
        for group in doubtful {
            self.parting.remove(&group);
            self.reconciler.add(group);
        }
        if refused {
            groups.iter().for_each(|group| self.reconciler.release(*group));
        }
        if refused && class == Class::BestEffort {
            self.leave(id, tokens, now);
            return false;
        }
        let groups = if refused { Vec::new() } else { groups };
        let fresh = Process {
            client,
            class,
            limited: tokens.is_limited(client),
            groups: Vec::new(),
            activity: Activity::UNKNOWN,
            turn: Turn::Idle,
            ended_at: None,
            runs_since: None,
            stopped_at: now,
            probes: 0,
        };
        let process = self.processes.entry(id).or_insert(fresh);
        process.groups = groups;
        if class == Class::BestEffort && tokens.set_kind(id, PeerKind::Steered, now).is_ok() {
            process.turn = if tokens.holds(id) { Turn::Granted } else { process.turn };
        }
        self.count_running(id, tokens, now);
        true
    }

    /// Gives back what a process had and does not announce again, and takes what it announces from whoever had it: another
    /// connection of the same process.
    fn let_go(&mut self, id: ProcessId, announced: &[GroupId]) {
        for (other, process) in &mut self.processes {
            let its = std::mem::take(&mut process.groups).into_iter();
            let (again, others): (Vec<_>, Vec<_>) = its.partition(|group| announced.contains(group));
            if *other != id {
                process.groups = others;
                continue;
            }
            process.groups = again;
            for group in others {
                self.reconciler.release(group);
                self.one.take_if(|one| *one == group);
            }
        }
    }

    /// A process has hung up. It may be about to end: its groups are given back in a moment, unless they are
    /// [forgotten](Self::forget) or announced again by then.
    pub fn part(&mut self, id: ProcessId, tokens: &mut TokenLedger, now: u64) {
        let groups = self.processes.get_mut(&id).map(|process| std::mem::take(&mut process.groups));
        for group in groups.into_iter().flatten() {
            self.reconciler.freeze(group);
            self.parting.insert(group, now.saturating_add(self.policy.parting_ns));
        }
        self.leave(id, tokens, now);
    }

    /// Gives back the groups of those who have hung up and live.
    pub(super) fn end_parting(&mut self, now: u64) {
        let due = self.parting.iter().filter(|(_, until)| **until <= now).map(|(group, _)| *group);
        for group in due.collect::<Vec<_>>() {
            self.parting.remove(&group);
            self.reconciler.release(group);
        }
    }

    /// A process has left, or its class or client changed: its groups are given back.
    pub fn leave(&mut self, id: ProcessId, tokens: &mut TokenLedger, now: u64) {
        let Some(process) = self.processes.remove(&id) else { return };
        process.groups.iter().for_each(|group| self.reconciler.release(*group));
        if process.is_best_effort() {
            // It may have left the ledger already.
            let _ = tokens.set_kind(id, PeerKind::Returns, now);
            self.tell_running(process.client, tokens, now);
        }
    }

    /// Forgets a group whose process has gone.
    pub fn forget(&mut self, group: GroupId) {
        self.reconciler.forget(group);
        self.last_chosen.remove(&group);
        self.parting.remove(&group);
        self.one.take_if(|one| *one == group);
        for process in self.processes.values_mut() {
            process.groups.retain(|its| *its != group);
        }
    }

    /// A client of which a control has failed may announce again: what failed will not be announced. Whether there was one.
    pub fn pardon(&mut self, client: ClientId) -> bool {
        self.given_up.remove(&client)
    }

    /// Takes a pardon back, if there was one: what is announced meanwhile stays.
    pub fn pardoned_until_now(&mut self, client: ClientId, pardoned: bool) {
        if pardoned {
            self.given_up.insert(client);
        }
    }

    /// Whether a control of a client has failed, so that nothing that it announces is steered.
    #[must_use]
    pub fn has_given_up(&self, client: ClientId) -> bool {
        self.given_up.contains(&client)
    }

    /// Nothing is remembered of a client that has left for good.
    pub fn forget_client(&mut self, client: ClientId) {
        self.given_up.remove(&client);
    }
}
