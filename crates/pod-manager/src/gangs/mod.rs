//! Gangs: what this manager tells those of the node's other GPUs, and the slots that follow from what all of them tell.

mod exchange;

pub(crate) use exchange::{TableSender, start};

use crate::clients::Clients;
use sluice_core::ClientId;
use sluice_core::gangs::{GangTable, NodeGangs, Slots};
use sluice_core::ledger::TokenLedger;
use tracing::debug;

/// The clients' gangs.
pub(crate) struct Gangs {
    /// Where tables go; `None`: there are no other managers.
    tables: Option<TableSender>,
    /// This manager has no controls of channel groups.
    by_grants: bool,
    /// The table that was sent last.
    table: GangTable,
    gangs: NodeGangs,
    /// The ledger's membership then.
    membership: u64,
}

impl Gangs {
    pub(crate) fn new(tables: Option<TableSender>, by_grants: bool) -> Self {
        Self { tables, by_grants, table: GangTable::default(), gangs: NodeGangs::default(), membership: 0 }
    }

    /// Sends the table if it has changed, and gives the clients the slots of their gangs.
    pub(crate) fn update(&mut self, clients: &Clients, ledger: &mut TokenLedger) {
        let Some(tables) = &self.tables else { return };
        if std::mem::replace(&mut self.membership, ledger.membership()) == ledger.membership() {
            return;
        }
        let mut table = GangTable { by_grants: self.by_grants, ..GangTable::default() };
        for (client, share) in ledger.entitled_shares() {
            let Some(gang) = gang_of(clients, client) else { continue };
            match share {
                // Several pods of a gang on one GPU have one slot.
                Some(share) => *table.shares.entry(gang).or_default() += share,
                None => drop(table.critical.insert(gang)),
            }
        }
        if self.table != table {
            self.table.clone_from(&table);
            tables.send(table);
        }
        self.apply(clients, ledger);
    }

    /// The tables of the node have other gangs as their result.
    pub(crate) fn gangs_changed(&mut self, gangs: NodeGangs, clients: &Clients, ledger: &mut TokenLedger) {
        for (gang, slot) in self.table.shares.keys().filter_map(|gang| Some((gang, gangs.slots.get(gang)?))) {
            if self.gangs.slots.get(gang) != Some(slot) {
                let (start_us, end_us) = (slot.start_ns / 1000, slot.end_ns / 1000);
                debug!(gang, start_us, end_us, "client of several GPUs has a slot in each cycle");
            }
        }
        self.gangs = gangs;
        self.apply(clients, ledger);
    }

    fn apply(&self, clients: &Clients, ledger: &mut TokenLedger) {
        // Those with processes here: others may have slots at the same time.
        let here = |gang: &String| self.table.shares.contains_key(gang) || self.table.critical.contains(gang);
        let gangs = || clients.iter().filter_map(|(id, _)| Some((id, gang_of(clients, id).filter(here)?)));
        let slot = |(id, gang)| Some((id, *self.gangs.slots.get(&gang)?));
        let slots: Slots = gangs().filter_map(slot).collect();
        let slots = slots.in_cycles_of(self.gangs.cycle_ns);
        let critical = gangs().filter(|(_, gang)| self.gangs.critical.contains(gang)).map(|(id, _)| id);
        ledger.set_slots(slots.with_critical(critical.collect()));
    }
}

fn gang_of(clients: &Clients, client: ClientId) -> Option<String> {
    clients.get(client).map(|client| client.definition.gang_name())
}
