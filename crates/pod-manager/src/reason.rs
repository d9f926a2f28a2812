//! Why the manager closed a connection: one word for the metric, one sentence for the log.

use nix::errno::Errno;
use sluice_comm::FrameError;
use sluice_comm::attach::ATTACH_VERSION;

/// Why a connection was closed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Reason {
    #[error("bad frame: {0}")]
    BadFrame(#[from] FrameError),
    #[error("closed in the middle of a frame")]
    ClosedMidFrame,
    #[error("client {0:?} is not in the resource file")]
    UnknownClient(String),
    /// `waited_ms`: how long the attach waited for the pod to become a client, milliseconds.
    #[error("pod UID {uid} is no client of this GPU{}", waited(.waited_ms))]
    UnknownPod { uid: String, waited_ms: u64 },
    #[error("pod UID {0} is no client of this GPU, and too many processes wait for their pods")]
    TooManyPending(String),
    #[error("attaches with protocol version {0}, expected {ATTACH_VERSION}")]
    WrongVersion(u32),
    /// The descriptor beside an ATTACH is missing or not a payload.
    #[error("bad attach payload: {0}")]
    BadPayload(String),
    /// The peer has no identity, or its process belongs to another client.
    #[error("not allowed: {0}")]
    NotAllowed(String),
    /// A request that is not allowed at this point.
    #[error("{0}")]
    OutOfOrder(&'static str),
    /// A peer of the old protocol names another client than before.
    #[error("names client {1:?} after {0:?}")]
    NameChanged(String, String),
    #[error("its client was removed")]
    ClientRemoved,
    #[error("does not read its answers")]
    NotReading,
    #[error("too many connections")]
    TooMany,
    #[error("too many connections of one process")]
    TooManyOfProcess,
    #[error("too many connections of pod UID {0}")]
    TooManyOfPod(String),
    #[error("too many connections of client {0}")]
    TooManyOfClient(String),
    /// A descriptor that came with a request could not be received.
    #[error("out of descriptors")]
    OutOfDescriptors,
    #[error("socket: {0}")]
    Socket(std::io::Error),
    #[error("no pages for it: {0}")]
    Pages(std::io::Error),
}

impl Reason {
    /// Every label, so that each counter exists from the start.
    pub(crate) const LABELS: [&'static str; 17] = [
        "bad_frame",
        "closed_mid_frame",
        "unknown_client",
        "wrong_version",
        "bad_payload",
        "not_allowed",
        "out_of_order",
        "name_changed",
        "client_removed",
        "not_reading",
        "too_many",
        "socket",
        "pages",
        "too_many_of_process",
        "too_many_held",
        "too_many_of_pod",
        "too_many_of_client",
    ];

    /// Position in [`Self::LABELS`].
    pub(crate) fn index(&self) -> usize {
        match self {
            Self::BadFrame(_) => 0,
            Self::ClosedMidFrame => 1,
            Self::UnknownClient(_) | Self::UnknownPod { .. } => 2,
            Self::WrongVersion(_) => 3,
            Self::BadPayload(_) => 4,
            Self::NotAllowed(_) => 5,
            Self::OutOfOrder(_) => 6,
            Self::NameChanged(..) => 7,
            Self::ClientRemoved => 8,
            Self::NotReading => 9,
            Self::TooMany | Self::OutOfDescriptors => 10,
            Self::Socket(_) => 11,
            Self::Pages(_) => 12,
            Self::TooManyOfProcess => 13,
            Self::TooManyPending(_) => 14,
            Self::TooManyOfPod(_) => 15,
            Self::TooManyOfClient(_) => 16,
        }
    }

    /// Whether the peer may be admitted when there is more room.
    pub(crate) fn is_lack_of_room(&self) -> bool {
        match self {
            Self::TooMany
            | Self::TooManyOfProcess
            | Self::TooManyOfPod(_)
            | Self::TooManyOfClient(_)
            | Self::OutOfDescriptors => true,
            Self::Pages(error) => matches!(
                error.raw_os_error().map(Errno::from_raw),
                Some(Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM)
            ),
            _ => false,
        }
    }

    /// The word for the metric's label `reason`.
    pub(crate) fn label(&self) -> &'static str {
        Self::LABELS[self.index()]
    }
}

fn waited(ms: &u64) -> String {
    if *ms == 0 { String::new() } else { format!(" (the node agent did not name it within {ms} ms)") }
}

#[cfg(test)]
mod tests;
