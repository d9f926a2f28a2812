//! What the manager logs about a process.

use super::obstacle::Obstacle;
use std::fmt::{self, Display, Formatter};

/// What an operator may want to know about a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// Its client announces too many groups, or too often.
    TooManyAnnounced,
    /// All clients together have too many groups.
    NoRoom,
    /// The manager refused its announcement, because the ownership check failed.
    NotProven(String),
    /// One of its descriptors is no control descriptor.
    BadDescriptor(String),
    /// The manager schedules it from outside, as its hook cannot announce all groups yet.
    Outside(String),
    /// It has attached, and the manager cannot find what groups it has beside its announcement.
    NotInspected(Obstacle),
    /// The manager schedules it by the driver's lock.
    Locked(Obstacle),
    /// The manager has disabled its groups and could not stop its threads.
    ThreadsRun(String),
    /// Its stop has ended.
    StopEnded,
    /// Controls of its groups fail: the manager schedules it by token meanwhile.
    ProbationBegan,
    /// The driver controls its groups again.
    ProbationEnded,
}

impl Display for Note {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyAnnounced => {
                f.write_str("client announces too many contexts, or too often: process is scheduled by token")
            }
            Self::NoRoom => {
                f.write_str("all clients together have too many contexts: process is scheduled by token")
            }
            Self::NotProven(why) => {
                write!(f, "announced contexts were not proven, process is scheduled by token: {why}")
            }
            Self::BadDescriptor(why) => {
                write!(f, "contexts cannot be controlled, process is scheduled by token: {why}")
            }
            Self::Outside(what) => write!(
                f,
                "process is scheduled from outside, as its hook cannot announce all groups yet: {what}"
            ),
            Self::NotInspected(obstacle) => write!(
                f,
                "process has attached and cannot be inspected: only the groups that it announced are under control: {obstacle}"
            ),
            Self::Locked(obstacle) => write!(f, "process is scheduled by the driver's lock: {obstacle}"),
            Self::ThreadsRun(why) => {
                write!(f, "only the channel groups of the process are disabled, its threads run: {why}")
            }
            Self::StopEnded => f.write_str("the stopped process is released"),
            Self::ProbationBegan => {
                f.write_str("controls of the process fail: it is scheduled by token meanwhile")
            }
            Self::ProbationEnded => f.write_str("the process can be controlled again"),
        }
    }
}
