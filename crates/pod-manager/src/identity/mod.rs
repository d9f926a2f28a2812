//! The identity of a peer: from what the kernel reports and what the peer claims, to the key by which its client is found.

mod by_cgroup;

pub use by_cgroup::ByCgroup;

use crate::peer::Peer;
use sluice_comm::Name;
use sluice_core::pod_cgroup::PodCgroup;

/// What is known of a peer at its first request.
#[derive(Clone, Copy, Debug)]
pub struct Claim<'a> {
    /// The name that it claims.
    pub name: &'a Name,
    /// What the kernel reports of it; `None` over TCP.
    pub peer: Option<&'a Peer>,
}

/// The key by which a peer's client is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// A name of the resource file.
    Named(Name),
    /// A pod, and the container in it.
    Pod(PodCgroup),
}

/// Why a peer has no identity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(pub String);

/// Derives an identity from what a peer claims, whether there is such a client or not.
pub trait Identify: Send {
    /// The identity of the peer.
    ///
    /// # Errors
    /// Why it has none.
    fn identify(&mut self, claim: &Claim<'_>) -> Result<Identity, Refusal>;
}

/// Without Kubernetes: a peer is the client whose name it claims.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByName;

impl Identify for ByName {
    fn identify(&mut self, claim: &Claim<'_>) -> Result<Identity, Refusal> {
        Ok(Identity::Named(*claim.name))
    }
}
