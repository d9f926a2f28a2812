//! Suspended clients: they get no grants. Their requests are withheld until they are resumed.

use super::{GrantRequest, TokenLedger};
use crate::ids::ClientId;

impl TokenLedger {
    /// Suspends a client from `now` on, or resumes it. A grant with a deadline ends at that, like any other, and is not extended. Unlimited
    /// grants are revoked at once, because they have no deadline. Then the other clients get its time.
    pub fn set_suspended(&mut self, client: ClientId, suspended: bool, now: u64) {
        let now = self.at(now);
        let Some(entry) = self.clients.get_mut(&client) else { return };
        if std::mem::replace(&mut entry.suspended, suspended) == suspended {
            return;
        }
        if suspended {
            if entry.is_critical() {
                self.revoke_all(client, now);
            }
            let requests = self.take_requests(client, now);
            self.withheld.extend(requests);
            return;
        }
        for process in entry.processes.clone() {
            if let Some(burst_ns) = self.withheld.remove(&process) {
                // The process and its client exist.
                let _ = self.request(process, now, GrantRequest { burst_ns, overuse_ns: 0 });
            }
        }
    }

    /// Whether a client is suspended.
    #[must_use]
    pub fn is_suspended(&self, client: ClientId) -> bool {
        self.clients.get(&client).is_some_and(|client| client.suspended)
    }
}
