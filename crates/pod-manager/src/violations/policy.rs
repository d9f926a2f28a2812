//! What follows from a violation, by the operator's choice and the client's limit.

use sluice_core::share::Share;

/// The operator's choice. It concerns violations of which the manager cannot restore the limit for good; the others are counted only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ViolationPolicy {
    /// [`Self::Stop`] for a client with a limit below the whole GPU, otherwise [`Self::Report`].
    #[default]
    Auto,
    /// The violation is counted, logged and reported to the node agent.
    Report,
    /// The process is stopped for a time.
    Stop,
    /// The node agent evicts the pod. The process is stopped meanwhile, as by [`Self::Stop`].
    Evict,
}

/// What follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Consequence {
    Report,
    Stop,
    Evict,
}

impl ViolationPolicy {
    /// What follows for a client with this limit.
    pub(super) fn consequence(self, limit: Share) -> Consequence {
        match self {
            Self::Auto if limit < Share::ONE => Consequence::Stop,
            Self::Auto | Self::Report => Consequence::Report,
            Self::Stop => Consequence::Stop,
            Self::Evict => Consequence::Evict,
        }
    }
}
