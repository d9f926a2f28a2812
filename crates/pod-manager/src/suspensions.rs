//! Suspended clients: they get no grants. A client whose memory can leave the GPU gets some until it has left, because a thread that waits for
//! a grant keeps the memory there.

use crate::clients::Clients;
use crate::io::Io;
use crate::party::Party;
use crate::processes::Processes;
use crate::residency::Residency;
use sluice_core::ClientId;
use sluice_core::ledger::TokenLedger;
use std::collections::BTreeSet;
use tracing::info;

/// The clients that are suspended.
#[derive(Default)]
pub(crate) struct Suspensions(BTreeSet<ClientId>);

impl Suspensions {
    /// The definition of a client is in force. One that is resumed gets grants from here on.
    pub(crate) fn set(
        &mut self,
        id: ClientId,
        suspended: bool,
        clients: &Clients,
        processes: &Processes,
        ledger: &mut TokenLedger,
        io: &Io,
    ) {
        if suspended {
            self.0.insert(id);
        } else if self.0.remove(&id) {
            show(id, false, processes);
            ledger.set_suspended(id, false, io.now());
            if let Some(client) = clients.get(id) {
                client.metrics.suspended.set(0);
                info!(client = client.name, "client is resumed");
            }
        }
    }

    /// A client is no client any more.
    pub(crate) fn forget(&mut self, id: ClientId) {
        self.0.remove(&id);
    }

    /// Withholds the grants of the clients whose memory does not move. After the pager has decided.
    pub(crate) fn update(
        &self,
        residency: &Residency,
        clients: &Clients,
        processes: &Processes,
        ledger: &mut TokenLedger,
        io: &mut Io,
    ) {
        for id in &self.0 {
            show(*id, true, processes);
            let withheld = !residency.is_moving(*id);
            if ledger.is_suspended(*id) == withheld {
                continue;
            }
            ledger.set_suspended(*id, withheld, io.now());
            let Some(client) = clients.get(*id) else { continue };
            client.metrics.suspended.set(i64::from(withheld));
            if withheld && io.may_log("suspended", Party::Client(*id)).is_some() {
                let away = residency.swapped(*id);
                let stays = clients.memory.client(*id).unwrap_or_default().total().saturating_sub(away);
                info!(
                    client = client.name,
                    bytes_away = away,
                    bytes_on_gpu = stays,
                    "client is suspended: it gets no grants"
                );
            }
        }
    }
}

/// Shows each process of a client whether it is suspended.
fn show(id: ClientId, suspended: bool, processes: &Processes) {
    for pages in processes.of_client(id).filter_map(|(_, process)| process.endpoint.pages.as_ref()) {
        if pages.grant().suspended() != suspended {
            pages.grant().set_suspended(suspended);
        }
    }
}
