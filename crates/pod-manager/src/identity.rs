//! Who a peer is: from what the kernel says of it and what it claims, to a client of the resource file.

use sluice_comm::Name;
use sluice_sys::socket::PeerCredentials;

/// What is known of a peer when it first speaks.
#[derive(Clone, Copy, Debug)]
pub struct Claim<'a> {
    /// The name it gives itself.
    pub name: &'a Name,
    /// What the kernel says of it; nothing over TCP.
    pub credentials: Option<PeerCredentials>,
}

/// Why a peer is nobody.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(pub String);

/// Turns a claim into the name of a client. Whether the resource file has that client is not its question.
///
/// Identity from the peer's cgroup (pods on a Kubernetes node) is another implementation of this.
pub trait Identify: Send {
    /// The name of the client that the peer belongs to.
    ///
    /// # Errors
    /// Why it belongs to none.
    fn identify(&mut self, claim: &Claim<'_>) -> Result<Name, Refusal>;
}

/// Standalone: peers are who they say they are.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByName;

impl Identify for ByName {
    fn identify(&mut self, claim: &Claim<'_>) -> Result<Name, Refusal> {
        Ok(*claim.name)
    }
}
