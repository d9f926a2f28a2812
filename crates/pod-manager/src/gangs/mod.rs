//! Gangs: what this manager tells those of the node's other GPUs, and the slots that follow from what all of them tell.

mod exchange;

pub(crate) use exchange::{TableSender, start};

use crate::clients::Clients;
use crate::definition::ClientKey;
use sluice_core::gangs::{GangTable, Slot};
use sluice_core::ledger::TokenLedger;
use std::collections::BTreeMap;
use tracing::info;

/// The slots of each gang of the node, by its name.
pub(crate) type NodeSlots = BTreeMap<String, Slot>;

/// The clients' gangs.
pub(crate) struct Gangs {
    /// Where tables go; `None`: there are no other managers.
    tables: Option<TableSender>,
    /// The table that was sent last.
    table: GangTable,
    slots: NodeSlots,
    /// The ledger's membership then.
    membership: u64,
}

impl Gangs {
    pub(crate) fn new(tables: Option<TableSender>) -> Self {
        Self { tables, table: GangTable::new(), slots: NodeSlots::new(), membership: 0 }
    }

    /// Sends the table if it has changed, and gives the clients the slots of their gangs.
    pub(crate) fn update(&mut self, clients: &Clients, ledger: &mut TokenLedger) {
        let Some(tables) = &self.tables else { return };
        if std::mem::replace(&mut self.membership, ledger.membership()) == ledger.membership() {
            return;
        }
        let shares = ledger.entitled_shares().into_iter();
        let table = shares.filter_map(|(client, share)| Some((gang_of(clients, client)?, share))).collect();
        if self.table != table {
            self.table.clone_from(&table);
            tables.send(table);
        }
        self.apply(clients, ledger);
    }

    /// The tables of the node have other slots as their result.
    pub(crate) fn slots_changed(&mut self, slots: NodeSlots, clients: &Clients, ledger: &mut TokenLedger) {
        for (gang, slot) in self.table.keys().filter_map(|gang| Some((gang, slots.get(gang)?))) {
            if self.slots.get(gang) != Some(slot) {
                let (start_us, end_us) = (slot.start_ns / 1000, slot.end_ns / 1000);
                info!(gang, start_us, end_us, "client of several GPUs has a slot in each epoch");
            }
        }
        self.slots = slots;
        self.apply(clients, ledger);
    }

    fn apply(&self, clients: &Clients, ledger: &mut TokenLedger) {
        let slot = |(id, _)| Some((id, *self.slots.get(&gang_of(clients, id)?)?));
        ledger.set_slots(clients.iter().filter_map(slot).collect());
    }
}

/// The gang of a client: its processes on all GPUs of the node.
fn gang_of(clients: &Clients, client: sluice_core::ClientId) -> Option<String> {
    Some(match &clients.get(client)?.definition.key {
        ClientKey::Named(name) => format!("client/{name}"),
        ClientKey::Pod { uid, .. } => format!("pod/{uid}"),
    })
}
