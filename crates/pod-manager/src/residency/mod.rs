//! Memory that leaves the GPU for that of others: reads what processes report of it, lets the pager decide, and shows each process its room.

mod host_pool;
mod reservations;

use crate::clients::Clients;
use crate::config::Overcommit;
use crate::io::Io;
use crate::measured_memory::Reservation;
use crate::party::Party;
use crate::poller::Source;
use crate::processes::{Process, Processes};
use host_pool::{HostPool, Place, Refusal};
use nix::sys::epoll::EpollFlags;
use reservations::WaitingReservations;
use sluice_comm::page::MovableMemory;
use sluice_core::residency::{Pager, PagerPolicy, Reported};
use sluice_core::{ClientId, ProcessId};
use std::collections::BTreeMap;
use tracing::warn;

/// Host memory is a multiple of this, as the chunks on the GPU are.
const GRANULE_BYTES: u64 = 2 << 20;

/// Moves leave the link to a latency-critical client for so long after its last work. One that has not begun yet may wait for the memory.
const PACED_NS: u64 = 1_000_000_000;

/// The pager and what waits for it; nothing without overcommitment.
pub(crate) struct Residency {
    overcommit: Option<(Overcommit, Pager)>,
    host: HostPool,
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
    swapped: u64,
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
        let host = HostPool::new(overcommit.as_ref().map_or(0, |overcommit| overcommit.host_memory))
            .on_node(overcommit.as_ref().and_then(|overcommit| overcommit.numa_node));
        Self {
            overcommit: overcommit.map(with_pager),
            host,
            waiting: WaitingReservations::default(),
            exported: BTreeMap::new(),
            decided_at: 0,
        }
    }

    /// Gives a process of a client with overcommitment its host memory, which is filled as it allocates. It has `used` bytes already.
    pub(crate) fn provide(
        &mut self,
        id: ProcessId,
        used: u64,
        clients: &Clients,
        processes: &mut Processes,
        io: &mut Io,
    ) {
        let Some((overcommit, _)) = &self.overcommit else { return };
        let Some(process) = processes.get_mut(id) else { return };
        process.endpoint.lacks_host_memory = false;
        let definition = clients.get(process.client).map(|client| &client.definition);
        let Some(definition) = definition.filter(|definition| definition.overcommit) else { return };
        let (client, bytes) = (process.client, most(definition.memory, overcommit));
        let (Some(key), Some(pidfd)) = (process.key, &process.endpoint.pidfd) else {
            process.endpoint.lacks_host_memory = true;
            return log_refusal(client, "the end of the process cannot be watched", clients, io);
        };
        let opened = self.host.open(client, key, pidfd, bytes).and_then(|(memory, new)| {
            let watch = |pidfd| io.poller.add(pidfd, Source::HostMemory, EpollFlags::EPOLLIN);
            let is_new = new.is_some();
            new.map_or(Ok(()), watch).map_err(|error| Refusal::System(error.into()))?;
            Ok((memory, is_new))
        });
        process.endpoint.lacks_host_memory = opened.is_err();
        match opened {
            Ok((memory, is_new)) => {
                let used = used.min(bytes);
                self.host.count(key, used);
                let memory = process.endpoint.host_memory.insert(memory).clone();
                // What the process has before it gets this memory has its place in that of an earlier manager, or none.
                if !is_new
                    && place(process) == Place::Here
                    && self.host.give(key, used, bytes, Place::Here).is_ok()
                {
                    memory.fill(used.next_multiple_of(GRANULE_BYTES));
                }
            }
            Err(refusal) => log_refusal(client, refusal, clients, io),
        }
    }

    /// Whether a process may allocate so many bytes more: if its memory may leave the GPU, there must be a place on the host for it.
    pub(crate) fn has_place(
        &mut self,
        id: ProcessId,
        bytes: u64,
        clients: &Clients,
        processes: &Processes,
        io: &mut Io,
    ) -> bool {
        let Some((overcommit, _)) = &self.overcommit else { return true };
        let Some(process) = processes.get(id) else { return true };
        let client = process.client;
        let Some((key, memory)) = process.key.zip(process.endpoint.host_memory.as_ref()) else {
            return !process.endpoint.lacks_host_memory;
        };
        let account = clients.memory.client(client).unwrap_or_default();
        if account.total().saturating_add(bytes) > account.limit {
            // The client's account refuses it.
            return true;
        }
        let needed = clients.memory.held_by(id).saturating_add(bytes);
        let of_client = most(account.limit, overcommit);
        let place = place(process);
        let given = self.host.give(key, needed, of_client, place).or_else(|_| {
            // The end of a process may not have been reported yet.
            self.host.take_back(|pidfd| io.poller.remove(pidfd));
            self.host.give(key, needed, of_client, place)
        });
        match given {
            Ok(()) if place == Place::Earlier => {}
            Ok(()) => memory.fill(needed.next_multiple_of(GRANULE_BYTES)),
            Err(ref refusal) => log_refusal(client, refusal, clients, io),
        }
        given.is_ok()
    }

    /// Takes back the host memory of processes that have ended.
    pub(crate) fn take_back(&mut self, io: &Io) {
        self.host.take_back(|pidfd| io.poller.remove(pidfd));
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
        let paced = critical_works(clients, processes, now);
        // Before the rooms, by which moves begin.
        show_moves(pager.has_moves(), clients, processes);
        let passed_ns = now.saturating_sub(std::mem::replace(&mut self.decided_at, now));
        for (id, memory) in &reported {
            show_room(pager.room(*id).unwrap_or(0), memory.need, paced, *id, processes);
            if let Some(client) = clients.get(*id) {
                let series = &client.metrics.memory;
                series.resident.set(gauge(memory.resident));
                let swapped = memory.need.saturating_sub(memory.resident);
                series.swapped.set(gauge(swapped));
                // A client whose last process has ended begins anew.
                let exported = Exported { moved: pager.moved(*id), waits: memory.waits, swapped };
                let before = self.exported.insert(*id, exported);
                let before = before.unwrap_or(Exported { moved: 0, waits: false, swapped: 0 });
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

    /// Whether memory of a client leaves the GPU or returns. For that its processes need grants.
    pub(crate) fn is_moving(&self, client: ClientId) -> bool {
        self.overcommit.as_ref().is_some_and(|(_, pager)| pager.is_moving(client))
    }

    /// Bytes of a client's memory that are not on the GPU.
    pub(crate) fn swapped(&self, client: ClientId) -> u64 {
        self.exported.get(&client).map_or(0, |exported| exported.swapped)
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

/// The most movable memory that a client may have: its limit, but not more than the GPU has for all.
fn most(limit: u64, overcommit: &Overcommit) -> u64 {
    limit.min(overcommit.gpu_memory).next_multiple_of(GRANULE_BYTES)
}

fn log_refusal(client: ClientId, why: impl std::fmt::Display, clients: &Clients, io: &mut Io) {
    if let Some(dropped) = io.may_log("host memory", Party::Client(client)) {
        let client = clients.name(client);
        warn!(client, dropped, "no host memory for a process, its allocation is refused: {why}");
    }
}

/// What a process reports of its movable memory, if there is a place on the host for it. It may report anything.
fn movable(process: &Process) -> Option<MovableMemory> {
    process.endpoint.host_memory.as_ref()?;
    let reported = process.endpoint.pages.as_ref()?.report().movable_memory();
    Some(MovableMemory { resident: reported.resident.min(reported.need), ..reported })
}

/// Since when a process has no work. It may report anything: one that is never idle keeps its quantum.
fn idle_since(process: &Process) -> Option<u64> {
    let activity = process.endpoint.pages.as_ref()?.activity();
    (!activity.busy).then_some(activity.since_ns)
}

/// Whether a latency-critical client has work, or had some a short time ago.
fn critical_works(clients: &Clients, processes: &Processes, now: u64) -> bool {
    let has_worked = |process: &Process| {
        process.endpoint.pages.is_some()
            && idle_since(process).is_none_or(|since| now.saturating_sub(since) < PACED_NS)
    };
    let mut critical = clients.iter().filter(|(id, _)| clients.is_critical(*id));
    critical.any(|(id, _)| processes.of_client(id).any(|(_, process)| has_worked(process)))
}

fn place(process: &Process) -> Place {
    let is_earlier = movable(process).is_some_and(|reported| reported.has_earlier_place);
    if is_earlier { Place::Earlier } else { Place::Here }
}

/// The bytes of a client that never leave, and what may leave. A client without overcommitment has the promise of its limit from its first
/// connection on, so that others have left before it allocates.
fn read(id: ClientId, capacity: u64, clients: &Clients, processes: &Processes) -> (u64, Option<Reported>) {
    let account = clients.memory.client(id).unwrap_or_default();
    let suspended = clients.get(id).is_some_and(|client| client.definition.suspended);
    let mut sum: Option<Reported> = None;
    for (_, process) in processes.of_client(id) {
        let (Some(memory), Some(host)) = (movable(process), &process.endpoint.host_memory) else { continue };
        let first = Reported { may_leave: true, suspended, idle_since: Some(0), ..Reported::default() };
        let sum = sum.get_or_insert(first);
        let idle_since = idle_since(process);
        sum.idle_since = sum.idle_since.zip(idle_since).map(|(one, other)| one.max(other));
        sum.need = sum.need.saturating_add(memory.need);
        sum.resident = sum.resident.saturating_add(memory.resident);
        sum.waits |= memory.waits && !suspended;
        sum.moves |= memory.moves;
        sum.may_leave &= memory.has_earlier_place || memory.need <= host.filled();
    }
    if let Some(sum) = sum {
        let fixed = account.total().saturating_sub(sum.need);
        return (fixed, Some(sum.within(capacity, fixed)));
    }
    let overcommits = clients.get(id).is_none_or(|client| client.definition.overcommit);
    let mut connected = processes.of_client(id).filter(|(_, process)| process.connections().next().is_some());
    let is_promised = !overcommits && account.limit <= capacity && connected.next().is_some();
    let promised = if is_promised { account.limit } else { 0 };
    (promised.max(account.total()), None)
}

/// Shows latency-critical processes whether memory of others moves: their copies then avoid the copy engines.
fn show_moves(moves: bool, clients: &Clients, processes: &Processes) {
    let critical = clients.iter().filter(|(id, _)| clients.is_critical(*id));
    let pages = critical
        .flat_map(|(id, _)| processes.of_client(id))
        .filter_map(|(_, process)| process.endpoint.pages.as_ref());
    for grant in pages.map(|pages| pages.grant()) {
        if grant.memory_moves() != moves {
            grant.set_memory_moves(moves);
        }
    }
}

/// Shows each process of a client its part of the client's room. If that suffices for the client, it is all that the process needs. Else it is
/// what the process has on the GPU, and as much more as there is. `paced`: its memory moves in small pieces.
fn show_room(room: u64, need: u64, paced: bool, id: ClientId, processes: &Processes) {
    let of_client = || processes.of_client(id).filter_map(|(_, process)| Some((process, movable(process)?)));
    let resident = of_client().fold(0_u64, |sum, (_, memory)| sum.saturating_add(memory.resident));
    let mut more = room.saturating_sub(resident);
    for (process, memory) in of_client() {
        let own = (memory.need - memory.resident).min(more);
        more -= own;
        let room = match room {
            _ if room >= need => memory.need,
            0 => 0,
            _ => memory.resident + own,
        };
        if let Some(pages) = &process.endpoint.pages {
            // A process that has attached anew reports a moment later what it has. A room of 0 would send all of it away.
            if memory.need == 0 && pages.grant().memory_room().is_none() {
                continue;
            }
            if pages.grant().paced_moves() != paced {
                pages.grant().set_paced_moves(paced);
            }
            pages.set_memory_room(room);
        }
    }
}
