//! One client of the pager.

/// What a client's processes report of their movable memory, summed up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reported {
    /// Bytes that they have, wherever these are, and those that they are about to allocate.
    pub need: u64,
    /// Bytes of it that are on the GPU.
    pub resident: u64,
    /// A thread waits for memory: for its return, or for room for an allocation.
    pub waits: bool,
    /// There is a place on the host for it.
    pub may_leave: bool,
    /// A process copies it at this moment.
    pub moves: bool,
    /// The client is suspended: its memory leaves, and waits for nothing.
    pub suspended: bool,
    /// Since when no process of it has work; `None`: one has.
    pub idle_since: Option<u64>,
}

impl Reported {
    /// What counts of it if the client also has this many bytes that never leave. Alone on the GPU each client has room: one that has more than
    /// the capacity, because that was lowered, counts with the capacity.
    pub fn within(self, capacity: u64, fixed: u64) -> Self {
        let need = self.need.min(capacity.saturating_sub(fixed));
        Self { need, resident: self.resident.min(need), ..self }
    }
}

/// Where the movable memory of a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// On the GPU.
    In,
    /// It was asked at this time to leave.
    Leaving(u64),
    /// On the host.
    Out,
    /// It was allowed at this time to return.
    Returning(u64),
}

/// While a client leaves it gets grants. One that comes back again and again while it is suspended reports falsely.
const MOST_ASKED_AGAIN: u8 = 3;

/// A client, its room, and its place in the order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    pub(super) reported: Reported,
    pub(super) phase: Phase,
    /// Bytes that it may have on the GPU; 0: all must leave.
    pub(super) room: u64,
    pub(super) waits_since: Option<u64>,
    /// When its memory last returned, or when it came.
    pub(super) returned_at: u64,
    /// It did not leave in time: it is not asked again before.
    pub(super) unasked_until: u64,
    /// Bytes that have left or returned.
    pub(super) moved: u64,
    /// It is suspended, or was and its memory has not returned since. Then the client waits, whether a thread does or not.
    resumes: bool,
    /// How often it was asked to leave because it had come back while it was suspended.
    asked_again: u8,
}

impl Member {
    /// A client that the pager did not know. What it has on the GPU it keeps for now.
    pub(super) fn new(reported: Reported, now: u64) -> Self {
        let is_out = reported.resident == 0 && reported.need > 0 && (reported.waits || reported.suspended);
        let phase = if is_out { Phase::Out } else { Phase::In };
        Self {
            reported,
            phase,
            room: reported.resident,
            waits_since: None,
            returned_at: now,
            unasked_until: 0,
            moved: 0,
            resumes: false,
            asked_again: 0,
        }
    }

    /// Bytes that it may have on the GPU at this moment.
    pub(super) fn occupied(&self) -> u64 {
        self.room.max(self.reported.resident)
    }

    pub(super) fn is_moving(&self) -> bool {
        matches!(self.phase, Phase::Leaving(_) | Phase::Returning(_))
    }

    /// Takes a report, and what follows from it: the end of a move, or that the client does not answer. Returns `true` if it has not left in
    /// time.
    pub(super) fn observe(
        &mut self,
        reported: Reported,
        (timeout_ns, unasked_ns): (u64, u64),
        now: u64,
    ) -> bool {
        let before = std::mem::replace(&mut self.reported, reported);
        let is_late = |since: u64| now.saturating_sub(since) >= timeout_ns;
        let mut stays = false;
        match self.phase {
            Phase::Leaving(_) if reported.resident == 0 && !reported.moves => {
                self.phase = Phase::Out;
                self.moved = self.moved.saturating_add(before.resident);
            }
            // Copies may take longer. Not much longer: a process may report anything.
            Phase::Leaving(since)
                if is_late(since)
                    && !(reported.moves && now.saturating_sub(since) < 3u64.saturating_mul(timeout_ns)) =>
            {
                stays = true;
                (self.phase, self.room) = (Phase::In, reported.resident);
                // The next one is asked first the next time.
                self.returned_at = now;
                self.unasked_until = now.saturating_add(unasked_ns);
            }
            Phase::Returning(since) if reported.resident > 0 || reported.need == 0 || is_late(since) => {
                (self.phase, self.returned_at) = (Phase::In, now);
                self.moved = self.moved.saturating_add(reported.resident);
            }
            _ => {}
        }
        // A process that was returning when its client was suspended, or while there was no manager.
        let is_back = self.phase == Phase::Out && reported.resident > 0;
        self.asked_again = if reported.suspended { self.asked_again } else { 0 };
        let is_asked = reported.suspended && (is_back || reported.moves && !self.is_moving());
        if is_asked && now >= self.unasked_until && self.asked_again < MOST_ASKED_AGAIN {
            self.asked_again += 1;
            self.leave(now);
        }
        if self.phase == Phase::In {
            // What it has freed is its room no longer. What it has on the GPU it had before it was known, or took while there was no manager.
            self.room = self.room.min(reported.need).max(reported.resident);
        }
        self.resumes |= reported.suspended;
        self.resumes &= reported.suspended || reported.need > self.room;
        let is_wanted = (reported.waits || self.resumes) && !reported.suspended;
        let waits = is_wanted && reported.need > self.room && !self.is_moving();
        self.waits_since = if waits { self.waits_since.or(Some(now)) } else { None };
        stays
    }

    /// Whether its memory may be asked to leave at `now`.
    pub(super) fn may_leave(&self, now: u64) -> bool {
        let is_here = matches!(self.phase, Phase::In | Phase::Returning(_)) && self.room > 0;
        is_here && self.reported.may_leave && now >= self.unasked_until
    }

    /// For how long it has had its memory and no work, nanoseconds.
    pub(super) fn idle_ns(&self, now: u64) -> u64 {
        self.reported.idle_since.map_or(0, |since| now.saturating_sub(since.max(self.returned_at)))
    }

    /// Whether it moves so that another client can have its place, or for its own turn. One that is suspended leaves for none.
    pub(super) fn takes_turns(&self) -> bool {
        self.is_moving() && !self.reported.suspended
    }

    /// Whether its memory is to leave because it is suspended. What is on its way back arrives first.
    pub(super) fn is_to_leave(&self, now: u64) -> bool {
        self.reported.suspended && self.phase == Phase::In && self.may_leave(now)
    }

    pub(super) fn leave(&mut self, now: u64) {
        (self.phase, self.room) = (Phase::Leaving(now), 0);
        self.waits_since = None;
    }

    /// Gives it room for what it needs. `others_left`: for this others have left, so its quantum begins.
    pub(super) fn admit(&mut self, others_left: bool, now: u64) {
        if self.phase == Phase::Out || others_left {
            self.phase = Phase::Returning(now);
        }
        self.room = self.reported.need;
        self.waits_since = None;
    }
}
