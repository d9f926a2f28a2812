//! Who a peer is: from what the kernel says of it and what it claims, to what its client is looked up by.

mod by_cgroup;

pub use by_cgroup::ByCgroup;

use crate::peer::Peer;
use sluice_comm::Name;
use sluice_core::pod_cgroup::PodCgroup;

/// What is known of a peer when it first speaks.
#[derive(Clone, Copy, Debug)]
pub struct Claim<'a> {
    /// The name it gives itself.
    pub name: &'a Name,
    /// What the kernel says of it; nothing over TCP.
    pub peer: Option<&'a Peer>,
}

/// What a peer's client is looked up by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// A name of the resource file.
    Named(Name),
    /// A pod, and the container in it.
    Pod(PodCgroup),
}

/// Why a peer is nobody.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(pub String);

/// Turns a claim into an identity. Whether there is such a client is not its question.
pub trait Identify: Send {
    /// Who the peer is.
    ///
    /// # Errors
    /// Why it is nobody.
    fn identify(&mut self, claim: &Claim<'_>) -> Result<Identity, Refusal>;
}

/// Standalone: peers are who they say they are.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByName;

impl Identify for ByName {
    fn identify(&mut self, claim: &Claim<'_>) -> Result<Identity, Refusal> {
        Ok(Identity::Named(*claim.name))
    }
}
