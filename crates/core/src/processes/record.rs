//! One process as the manager sees it.

use super::announcement::{Announcement, PostponedUntil};
use super::history::History;
use super::uncertainty::Uncertainty;
use crate::ids::{ClientId, ConnectionId, ProcessKey};
use sluice_comm::Channel;
use sluice_comm::attach::ContextHandles;

/// How the groups of a process come to be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Its hook announces them, or has not yet. Also a peer of the old protocol, which has none.
    Announces,
    /// It has attached, and its groups are not under control as it announced them. The next inspection takes them as they are found.
    Misannounced,
    /// As [`Self::Misannounced`]; its groups were taken as they were found. Its announcements are only compared, and the activity that it
    /// reports does not count.
    Corrected,
    /// It runs without the hook, or has closed its channel while its groups were kept. They are found from outside.
    Unhooked,
}

impl State {
    /// Whether its groups under control are those that were found.
    pub const fn is_unhooked(self) -> bool {
        matches!(self, Self::Corrected | Self::Unhooked)
    }

    /// Whether it has attached and is scheduled from outside all the same.
    pub const fn is_misannounced(self) -> bool {
        matches!(self, Self::Misannounced | Self::Corrected)
    }

    /// Its groups are taken as they are found.
    pub(super) const fn found(self) -> Self {
        if self.is_misannounced() { Self::Corrected } else { Self::Unhooked }
    }

    /// It opens its channel for grants. From here on its hook announces its groups. The groups of a process that was scheduled from outside
    /// after it had attached before stay under control until it has announced them. Otherwise it could attach and detach without end.
    pub(super) const fn attached(self, has_attached_before: bool) -> Self {
        match self {
            Self::Misannounced | Self::Corrected => Self::Corrected,
            Self::Unhooked if has_attached_before => Self::Corrected,
            Self::Unhooked | Self::Announces => Self::Announces,
        }
    }
}

/// The protocol of a process's connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// Two channels, pages, and announcements.
    Attach,
    /// Gemini's: one connection that counts as a process.
    Gemini,
}

/// A stop of a process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Stop<D> {
    pub(super) until: u64,
    /// What was announced last on its connection meanwhile.
    pub(super) announcement: Option<Announcement<D>>,
    /// When its groups are disabled anew if it announces some of them no longer.
    pub(super) next_disable: u64,
}

/// A process, or a connection of the old protocol, which counts as one. `P` is what the caller keeps with it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record<P, D> {
    /// Its client.
    pub client: ClientId,
    /// Pid and start time; `None` if its two connections cannot be attributed to one process.
    pub key: Option<ProcessKey>,
    /// Its number, if the kernel reports it.
    pub pid: Option<i32>,
    /// The protocol of its connections.
    pub protocol: Protocol,
    /// How its groups come to be known.
    pub state: State,
    /// The connection that carries grants; for a peer of the old protocol the only one.
    pub token: Option<ConnectionId>,
    /// The connection for memory.
    pub memory: Option<ConnectionId>,
    /// What the caller keeps with it.
    pub endpoint: P,
    /// The groups that it announced last, unless that was refused.
    pub(super) announced: Option<Vec<ContextHandles>>,
    /// An announcement that may not be made yet.
    pub(super) postponed: Option<(Announcement<D>, PostponedUntil)>,
    /// The last announcement was refused because the manager had no room or no descriptor for it.
    pub(super) has_no_room: bool,
    /// Its groups stayed under control when a connection closed.
    pub(super) uncertainty: Option<Uncertainty>,
    /// It is stopped for a violation.
    pub(super) stop: Option<Stop<D>>,
    pub(super) history: History,
}

impl<P, D> Record<P, D> {
    /// A process without connections.
    pub fn new(client: ClientId, key: Option<ProcessKey>, pid: Option<i32>, endpoint: P) -> Self {
        Self {
            client,
            key,
            pid,
            protocol: Protocol::Attach,
            state: State::Announces,
            token: None,
            memory: None,
            endpoint,
            announced: None,
            postponed: None,
            has_no_room: false,
            uncertainty: None,
            stop: None,
            history: History::default(),
        }
    }

    /// Its open connections.
    pub fn connections(&self) -> impl Iterator<Item = ConnectionId> + use<P, D> {
        [self.token, self.memory].into_iter().flatten()
    }

    /// The connection of this channel, if it is open.
    pub(super) fn channel_mut(&mut self, channel: Channel) -> &mut Option<ConnectionId> {
        match channel {
            Channel::Token => &mut self.token,
            Channel::Memory => &mut self.memory,
        }
    }

    /// Whether its hook holds the channel for grants open.
    pub fn is_attached(&self) -> bool {
        self.token.is_some()
    }

    /// Whether its hook announces its groups, and is believed.
    pub fn announces(&self) -> bool {
        self.is_attached() && !self.state.is_misannounced()
    }

    /// Whether it is stopped for a violation.
    pub fn is_stopped(&self) -> bool {
        self.stop.is_some()
    }

    /// Whether its groups stay under control when its connection closes. Another process of its pod may have closed the sockets of a stopped
    /// process. One that is scheduled from outside could otherwise attach and detach without end, or open and close its channel for memory.
    pub(super) fn keeps_groups(&self) -> bool {
        self.stop.is_some() || self.state.is_misannounced() || self.state == State::Unhooked
    }

    /// Whether something of it happens at a time.
    pub(super) fn is_timed(&self) -> bool {
        self.stop.is_some() || self.uncertainty.is_some() || self.postponed.is_some()
    }

    /// Whether its stop has ended at `now`, or a postponed announcement may be made.
    pub(super) fn is_due(&self, now: u64) -> bool {
        let is_now = |(_, until): &(_, _)| matches!(until, PostponedUntil::Time(at) if *at <= now);
        self.stop.as_ref().is_some_and(|stop| stop.until <= now)
            || self.postponed.as_ref().is_some_and(is_now)
    }

    /// When something of it happens next.
    pub(super) fn next_deadline(&self) -> Option<u64> {
        let postponed = self.postponed.as_ref().and_then(|(_, until)| match until {
            PostponedUntil::Time(at) => Some(*at),
            PostponedUntil::Proven(_) => None,
        });
        let stop = self.stop.as_ref().map(|stop| {
            if stop.announcement.is_some() { stop.until.min(stop.next_disable) } else { stop.until }
        });
        let mark = self.uncertainty.as_ref().and_then(Uncertainty::next_mark);
        postponed.into_iter().chain(stop).chain(mark).min()
    }
}
