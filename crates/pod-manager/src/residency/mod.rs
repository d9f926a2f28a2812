//! Memory that leaves the GPU for that of others: reads what processes report of it, lets the pager decide, and shows each process its room.

mod reservations;

use crate::clients::Clients;
use crate::config::Overcommit;
use crate::io::Io;
use crate::measured_memory::Reservation;
use crate::party::Party;
use crate::processes::{HostMemory, Process, Processes};
use reservations::WaitingReservations;
use sluice_comm::page::MovableMemory;
use sluice_core::residency::{Pager, PagerPolicy, Reported};
use sluice_core::{ClientId, ProcessId};
use std::collections::BTreeMap;
use tracing::warn;

/// Host memory is a multiple of this, as the chunks on the GPU are.
const GRANULE_BYTES: u64 = 2 << 20;

/// The pager and what waits for it; nothing without overcommitment.
pub(crate) struct Residency {
    overcommit: Option<(Overcommit, Pager)>,
    waiting: WaitingReservations,
    /// What was exported of each client.
    exported: BTreeMap<ClientId, Exported>,
    /// When the pager last decided.
    decided_at: u64,
}

/// What the metrics of a client contain.
#[derive(Clone, Copy)]
struct Exported {
    moved: u64,
    waits: bool,
}

impl Residency {
    pub(crate) fn new(overcommit: Option<Overcommit>) -> Self {
        let with_pager = |overcommit: Overcommit| {
            let policy = PagerPolicy {
                capacity: overcommit.gpu_memory,
                min_quantum_ns: crate::config::nanos(overcommit.quantum),
                ..PagerPolicy::default()
            };
            (overcommit, Pager::new(policy))
        };
        Self {
            overcommit: overcommit.map(with_pager),
            waiting: WaitingReservations::default(),
            exported: BTreeMap::new(),
            decided_at: 0,
        }
    }

    /// Gives a process of a client with overcommitment host memory, as much as the client may have on the GPU, if there is so much left.
    pub(crate) fn provide(&self, id: ProcessId, clients: &Clients, processes: &mut Processes, io: &mut Io) {
        let Some((overcommit, _)) = &self.overcommit else { return };
        let Some(process) = processes.get_mut(id).filter(|process| process.endpoint.host_memory.is_none())
        else {
            return;
        };
        process.endpoint.lacks_host_memory = false;
        let client = process.client;
        let Some(definition) = clients.get(client).map(|client| &client.definition) else { return };
        if !definition.overcommit {
            return;
        }
        let bytes = definition.memory.min(overcommit.gpu_memory).next_multiple_of(GRANULE_BYTES);
        let used: u64 = processes.iter().filter_map(|(_, process)| host_bytes(process)).sum();
        let made = if used.saturating_add(bytes) > overcommit.host_memory {
            Err(format!("{used} of {} bytes are in use, {bytes} are needed", overcommit.host_memory))
        } else {
            HostMemory::create(bytes).map_err(|error| error.to_string())
        };
        match (made, processes.get_mut(id)) {
            (Ok(memory), Some(process)) => process.endpoint.host_memory = Some(memory),
            (Err(why), process) => {
                process.into_iter().for_each(|process| process.endpoint.lacks_host_memory = true);
                if let Some(dropped) = io.may_log("host memory", Party::Client(client)) {
                    let client = clients.name(client);
                    warn!(
                        client,
                        dropped, "no host memory for a process, its allocations are refused: {why}"
                    );
                }
            }
            (Ok(_), None) => {}
        }
    }

    /// Lets the pager decide, and shows each process its room.
    pub(crate) fn update(&mut self, clients: &Clients, processes: &Processes, now: u64) {
        let Some((overcommit, pager)) = &mut self.overcommit else { return };
        let mut fixed = 0_u64;
        let mut reported = BTreeMap::new();
        for (id, _) in clients.iter() {
            let (client, of_client) = read(id, overcommit.gpu_memory, clients, processes);
            fixed = fixed.saturating_add(client);
            reported.extend(of_client.map(|of_client| (id, of_client)));
        }
        pager.advance(now, fixed, &reported);
        let passed_ns = now.saturating_sub(std::mem::replace(&mut self.decided_at, now));
        for (id, memory) in &reported {
            show_room(pager.room(*id).unwrap_or(0), *id, processes);
            if let Some(client) = clients.get(*id) {
                let series = &client.metrics.memory;
                series.resident.set(gauge(memory.resident));
                series.swapped.set(gauge(memory.need.saturating_sub(memory.resident)));
                // A client whose last process has ended begins anew.
                let exported = Exported { moved: pager.moved(*id), waits: memory.waits };
                let before = self.exported.insert(*id, exported);
                let before = before.unwrap_or(Exported { moved: 0, waits: false });
                series.moved.inc_by(exported.moved.saturating_sub(before.moved));
                if before.waits {
                    series.waited_seconds.inc_by(passed_ns as f64 * 1e-9);
                }
            }
        }
        let ended = |id: &ClientId, _: &mut Exported| !reported.contains_key(id);
        for (id, _) in self.exported.extract_if(.., ended) {
            if let Some(client) = clients.get(id) {
                client.metrics.memory.resident.set(0);
                client.metrics.memory.swapped.set(0);
            }
        }
    }

    /// Makes a reservation of memory that never leaves wait until the clients have left whose memory is in its place. Returns it if it does
    /// not have to wait.
    pub(crate) fn delay(
        &mut self,
        reservation: Reservation,
        clients: &Clients,
        processes: &Processes,
        now: u64,
    ) -> Option<Reservation> {
        let process = processes.get(reservation.process);
        if self.overcommit.is_none() || process.is_none_or(|process| process.endpoint.host_memory.is_some()) {
            return Some(reservation);
        }
        self.update(clients, processes, now);
        if self.makes_room() { self.waiting.add(reservation, now) } else { Some(reservation) }
    }

    /// The reservations that wait no longer.
    pub(crate) fn take_due_reservations(&mut self, now: u64) -> Vec<Reservation> {
        let makes_room = self.makes_room();
        self.waiting.take_due(makes_room, now)
    }

    pub(crate) fn next_deadline(&self) -> Option<u64> {
        let pager = self.overcommit.as_ref().and_then(|(_, pager)| pager.next_deadline());
        pager.into_iter().chain(self.waiting.next_deadline()).min()
    }

    /// Whether clients leave for memory that never leaves.
    fn makes_room(&self) -> bool {
        self.overcommit.as_ref().is_some_and(|(_, pager)| pager.makes_room_for_fixed())
    }
}

fn gauge(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn host_bytes(process: &Process) -> Option<u64> {
    process.endpoint.host_memory.as_ref().map(HostMemory::bytes)
}

/// What a process reports of its movable memory, if it has a place on the host for it. It may report anything, so no more than that counts.
fn movable(process: &Process) -> Option<MovableMemory> {
    let most = host_bytes(process)?;
    let reported = process.endpoint.pages.as_ref()?.report().movable_memory();
    let need = reported.need.min(most);
    Some(MovableMemory { need, resident: reported.resident.min(need), ..reported })
}

/// The bytes of a client that never leave, and what may leave. A client without overcommitment has the promise of its limit from its first
/// connection on, so that others have left before it allocates.
fn read(id: ClientId, capacity: u64, clients: &Clients, processes: &Processes) -> (u64, Option<Reported>) {
    let account = clients.memory.client(id).unwrap_or_default();
    let mut sum: Option<Reported> = None;
    for (_, process) in processes.of_client(id) {
        let (Some(memory), Some(host)) = (movable(process), &process.endpoint.host_memory) else { continue };
        let sum = sum.get_or_insert(Reported { may_leave: true, ..Reported::default() });
        sum.need = sum.need.saturating_add(memory.need);
        sum.resident = sum.resident.saturating_add(memory.resident);
        sum.waits |= memory.waits;
        sum.may_leave &= host.is_filled();
    }
    if let Some(sum) = sum {
        return (account.total().saturating_sub(sum.need), Some(sum));
    }
    let overcommits = clients.get(id).is_none_or(|client| client.definition.overcommit);
    let mut connected = processes.of_client(id).filter(|(_, process)| process.connections().next().is_some());
    let is_promised = !overcommits && account.limit <= capacity && connected.next().is_some();
    let promised = if is_promised { account.limit } else { 0 };
    (promised.max(account.total()), None)
}

/// Shows each process of a client its part of the client's room: what it has on the GPU, and as much more as there is.
fn show_room(room: u64, id: ClientId, processes: &Processes) {
    let of_client = || processes.of_client(id).filter_map(|(_, process)| Some((process, movable(process)?)));
    let resident: u64 = of_client().map(|(_, memory)| memory.resident).sum();
    let mut more = room.saturating_sub(resident);
    for (process, memory) in of_client() {
        let own = (memory.need - memory.resident).min(more);
        more -= own;
        let room = if room == 0 { 0 } else { memory.resident + own };
        if let Some(pages) = &process.endpoint.pages {
            pages.set_memory_room(room);
        }
    }
}
