//! The pager: which best-effort clients have their memory on the GPU while it does not hold the memory of all.
//!
//! A client's movable memory is on the GPU as a whole or not at all. Each client has a *room*: the bytes that it may have there. The rooms of
//! all clients and the fixed memory of the others never exceed the capacity, except where fixed memory grows: then rooms shrink at once.
//! A client whose room is smaller than its memory leaves the GPU. A room grows only where bytes are free, so a client that does not leave
//! keeps what it has and others wait.
//!
//! *Order.* Clients that wait for memory are served in the order in which they began to wait. If there are no free bytes, the clients whose memory
//! returned longest ago leave. *Hysteresis.* After moves the next ones wait for a quantum that is a multiple of the time that they took. A client
//! that has been idle for as long as these moves took gives its place up before: at worst moves double what its pause costs the others.
//!
//! *Suspension.* The memory of a suspended client leaves at once and has no room until the client is resumed. Then it waits like any other.

mod member;
mod policy;

use crate::ids::ClientId;
use member::{Member, Phase};
use std::collections::BTreeMap;

pub use member::Reported;
pub use policy::PagerPolicy;

/// A client that was idle for a shorter time has only paused between two pieces of work.
const LEAST_IDLE_NS: u64 = 200_000_000;

/// The state of all clients whose memory may leave the GPU.
#[derive(Clone, Debug)]
pub struct Pager {
    policy: PagerPolicy,
    members: BTreeMap<ClientId, Member>,
    /// Bytes that never leave: of clients without overcommitment, and what others have besides their movable memory.
    fixed: u64,
    /// The client for which others leave.
    next: Option<ClientId>,
    /// No moves begin before, unless fixed memory needs the room.
    run_until: u64,
    /// Time that moves have taken since the last quantum began.
    moves_ns: u64,
    /// Time that the moves before the present quantum took.
    last_moves_ns: u64,
    /// A client's return was one of them.
    has_returned: bool,
    /// When the pager last decided, and whether a move was in progress then.
    decided_at: u64,
    was_moving: bool,
}

impl Pager {
    /// A pager without clients.
    pub fn new(policy: PagerPolicy) -> Self {
        Self {
            policy,
            members: BTreeMap::new(),
            fixed: 0,
            next: None,
            run_until: 0,
            moves_ns: 0,
            last_moves_ns: 0,
            has_returned: false,
            decided_at: 0,
            was_moving: false,
        }
    }

    /// Decides at `now`, nanoseconds. `fixed`: bytes that never leave; `reported`: every client whose memory may leave.
    pub fn advance(&mut self, now: u64, fixed: u64, reported: &BTreeMap<ClientId, Reported>) {
        self.fixed = fixed;
        self.observe(now, reported);
        self.count_moves(now);
        self.send_suspended_away(now);
        self.make_room_for_fixed(now);
        self.serve_waiting(now);
        (self.decided_at, self.was_moving) = (now, self.is_taking_turns());
    }

    /// Bytes that a client may have on the GPU; 0: its memory must leave. `None`: it is unknown.
    pub fn room(&self, client: ClientId) -> Option<u64> {
        self.members.get(&client).map(|member| member.room)
    }

    /// Bytes of a client that have left the GPU or returned since it came.
    pub fn moved(&self, client: ClientId) -> u64 {
        self.members.get(&client).map_or(0, |member| member.moved)
    }

    /// Whether memory of a client leaves or returns.
    pub fn is_moving(&self, client: ClientId) -> bool {
        self.members.get(&client).is_some_and(Member::is_moving)
    }

    /// Whether memory of any client leaves or returns.
    pub fn has_moves(&self) -> bool {
        self.members.values().any(Member::is_moving)
    }

    /// Whether the fixed memory does not fit yet and clients leave for it.
    pub fn makes_room_for_fixed(&self) -> bool {
        let leaves = |member: &Member| matches!(member.phase, Phase::Leaving(_));
        !self.fits(0) && self.members.values().any(leaves)
    }

    /// When the clock, and no report, next changes a decision.
    pub fn next_deadline(&self) -> Option<u64> {
        let moves = self.members.values().filter_map(|member| match member.phase {
            Phase::Leaving(since) | Phase::Returning(since) => {
                Some(since.saturating_add(self.policy.move_timeout_ns))
            }
            Phase::In | Phase::Out => None,
        });
        let waits = self.members.values().any(|member| member.waits_since.is_some()) && !self.was_moving;
        let unasked = self.members.values().map(|member| member.unasked_until);
        let idle = self.members.values().filter_map(|member| {
            let since = member.reported.idle_since?.max(member.returned_at);
            Some(since.saturating_add(self.last_moves_ns.max(LEAST_IDLE_NS)))
        });
        let again = unasked.chain([self.run_until]).chain(idle).filter(|_| waits);
        let suspended = self.members.values().filter(|member| member.reported.suspended && member.room > 0);
        let again = again.chain(suspended.map(|member| member.unasked_until));
        // What was due has been decided: nothing changes before the next report.
        moves.chain(again).filter(|at| *at > self.decided_at).min()
    }

    fn observe(&mut self, now: u64, reported: &BTreeMap<ClientId, Reported>) {
        self.members.retain(|client, _| reported.contains_key(client));
        let limits = (self.policy.move_timeout_ns, self.policy.unasked_ns);
        for (client, reported) in reported {
            let member = self.members.entry(*client).or_insert_with(|| Member::new(*reported, now));
            self.has_returned |= matches!(member.phase, Phase::Returning(_));
            if member.observe(*reported, limits, now) {
                // Nothing was moved while the pager waited for this client, so the others wait for no quantum.
                (self.moves_ns, self.decided_at) = (0, now);
            }
        }
        let waits =
            |client: &ClientId| self.members.get(client).is_some_and(|member| member.waits_since.is_some());
        self.next = self.next.filter(waits);
    }

    /// Counts the time that moves take. When they have ended, the quantum begins.
    fn count_moves(&mut self, now: u64) {
        if !self.was_moving {
            return;
        }
        self.moves_ns = self.moves_ns.saturating_add(now.saturating_sub(self.decided_at));
        if self.is_taking_turns() || self.next_fits() {
            return;
        }
        let by_moves = self.moves_ns.saturating_mul(self.policy.run_per_move);
        // What a suspended client leaves is free without a quantum.
        let suspended_leaves =
            self.members.values().any(|member| member.is_moving() && member.reported.suspended);
        let quantum = match self.has_returned {
            true => by_moves.max(self.policy.min_quantum_ns),
            false if suspended_leaves => 0,
            false => by_moves,
        };
        self.run_until = now.saturating_add(quantum);
        self.last_moves_ns = self.moves_ns;
        (self.moves_ns, self.has_returned, self.next) = (0, false, None);
    }

    /// Whether the client for which others have left can be admitted now: its return belongs to the same moves.
    fn next_fits(&self) -> bool {
        let next = self.next.and_then(|client| self.members.get(&client));
        next.is_some_and(|member| self.fits(member.reported.need.saturating_sub(member.room)))
    }

    /// What suspended clients leave is free at once: no quantum of theirs protects it.
    fn send_suspended_away(&mut self, now: u64) {
        for member in self.members.values_mut().filter(|member| member.is_to_leave(now)) {
            member.leave(now);
            self.run_until = self.run_until.min(now);
        }
    }

    fn make_room_for_fixed(&mut self, now: u64) {
        while self.fixed.saturating_add(self.rooms()) > self.policy.capacity {
            let Some(victim) = self.victims(None, now).next() else { return };
            self.leave(victim, now);
        }
    }

    /// Serves the clients that wait, in their order.
    fn serve_waiting(&mut self, now: u64) {
        let mut waiting: Vec<(u64, ClientId)> = Vec::new();
        waiting
            .extend(self.members.iter().filter_map(|(client, member)| Some((member.waits_since?, *client))));
        // The client for which others leave comes first.
        waiting.sort_unstable_by_key(|(since, client)| (self.next != Some(*client), *since, *client));
        for (_, client) in waiting {
            let Some(member) = self.members.get(&client).copied() else { continue };
            let more = member.reported.need.saturating_sub(member.room);
            let is_next = self.next == Some(client);
            // What leaves for another client is not free.
            let promised = if is_next { 0 } else { self.promised() };
            let is_turn = !self.is_taking_turns() && self.next.is_none();
            if self.fits(more.saturating_add(promised)) {
                // More memory of a client that is on the GPU moves nothing.
                if member.phase == Phase::In || is_next || (is_turn && now >= self.run_until) {
                    self.admit(client, now);
                }
            } else if is_turn {
                self.make_room_for(client, more, now);
            }
        }
    }

    /// Has others leave if that makes room for `more` bytes of a client. Before the end of the quantum these are idle ones.
    fn make_room_for(&mut self, client: ClientId, more: u64, now: u64) {
        let needed = self.fixed.saturating_add(self.rooms()).saturating_add(more);
        let mut missing = needed.saturating_sub(self.policy.capacity);
        let mut leaving = Vec::new();
        let is_over = now >= self.run_until;
        let gives_up = |victim: &ClientId| {
            is_over || self.members.get(victim).is_some_and(|victim| self.is_idle(victim, now))
        };
        for victim in self.victims(Some(client), now).filter(gives_up) {
            if missing == 0 {
                break;
            }
            missing = missing.saturating_sub(self.members.get(&victim).map_or(0, |victim| victim.room));
            leaving.push(victim);
        }
        if missing > 0 || leaving.is_empty() {
            return;
        }
        leaving.into_iter().for_each(|victim| self.leave(victim, now));
        self.next = Some(client);
    }

    /// Whether a client gives its place up before the end of the quantum.
    fn is_idle(&self, member: &Member, now: u64) -> bool {
        member.reported.idle_since.is_some() && member.idle_ns(now) >= self.last_moves_ns.max(LEAST_IDLE_NS)
    }

    /// The clients that may be asked to leave, except one: the one first whose memory returned longest ago.
    fn victims(&self, except: Option<ClientId>, now: u64) -> impl Iterator<Item = ClientId> + use<> {
        let may_leave =
            |(client, member): &(&ClientId, &Member)| Some(**client) != except && member.may_leave(now);
        let mut victims: Vec<(u64, ClientId)> = self
            .members
            .iter()
            .filter(may_leave)
            .map(|(client, member)| (member.returned_at, *client))
            .collect();
        victims.sort_unstable();
        victims.into_iter().map(|(_, client)| client)
    }

    fn leave(&mut self, client: ClientId, now: u64) {
        if let Some(member) = self.members.get_mut(&client) {
            member.leave(now);
        }
    }

    fn admit(&mut self, client: ClientId, now: u64) {
        let others_left = self.next == Some(client);
        if let Some(member) = self.members.get_mut(&client) {
            member.admit(others_left, now);
        }
        self.next = self.next.filter(|next| *next != client);
    }

    /// Bytes that the client for which others leave will be given.
    fn promised(&self) -> u64 {
        let next = self.next.and_then(|client| self.members.get(&client));
        next.map_or(0, |member| member.reported.need.saturating_sub(member.room))
    }

    fn fits(&self, more: u64) -> bool {
        self.fixed.saturating_add(self.occupied()).saturating_add(more) <= self.policy.capacity
    }

    fn occupied(&self) -> u64 {
        self.members.values().fold(0, |sum, member| sum.saturating_add(member.occupied()))
    }

    fn rooms(&self) -> u64 {
        self.members.values().fold(0, |sum, member| sum.saturating_add(member.room))
    }

    fn is_taking_turns(&self) -> bool {
        self.members.values().any(Member::takes_turns)
    }
}

#[cfg(test)]
mod tests;
