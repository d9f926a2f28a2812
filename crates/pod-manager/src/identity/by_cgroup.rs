//! On a Kubernetes node: a peer belongs to the pod of its cgroup, whatever name it claims.

use super::{Claim, Identify, Identity, Refusal};
use sluice_core::pod_cgroup::pod_of;

/// Identifies peers by their cgroups.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByCgroup;

impl Identify for ByCgroup {
    fn identify(&mut self, claim: &Claim<'_>) -> Result<Identity, Refusal> {
        let refuse = |why: String| Err(Refusal(why));
        let Some(peer) = claim.peer else { return refuse("nothing is known of the peer".into()) };
        let pid = peer.credentials.pid;
        let Some(place) = &peer.place else {
            // The kernel reports pid 0 for a process of a pid namespace that is not visible from here.
            return refuse(format!(
                "process {pid} is in no pid namespace seen from here (the pod-manager needs the host's: hostPID)"
            ));
        };
        match pod_of(&place.cgroup) {
            Ok(pod) => Ok(Identity::Pod(pod)),
            // The process has chosen its name, so the log quotes it.
            Err(why) => refuse(format!("process {pid} ({:?}) is in no pod: {why}", place.command)),
        }
    }
}

#[cfg(test)]
mod tests;
