//! The engine and the streams of its clients: executes the commands of the rings and publishes the progress.

mod objects;

use super::files::Files;
use super::{Clock, DaemonConfig};
use crate::engine::{Advanced, Command, Engine, Graph, GroupId, OwnerId, StreamId, Work};
use crate::rm::{ClientNumbers, Rm};
use crate::wire::record::{Order, Record};
use crate::wire::region::{EVENTS, Region, STREAMS};
use std::collections::HashMap;
use std::sync::Arc;

/// CU_COMPUTEMODE_PROHIBITED and CU_COMPUTEMODE_EXCLUSIVE_PROCESS.
const PROHIBITED: i32 = 2;
const EXCLUSIVE: i32 = 3;

pub(super) struct Tenant {
    pub(super) owner: OwnerId,
    pid: i32,
    uid: u32,
    pub(super) region: Region,
    groups: Vec<GroupId>,
    graphs: HashMap<u64, Arc<Graph>>,
    slots: HashMap<usize, StreamId>,
    next_graph: u64,
}

/// The wait of a process until a stream has completed a command.
#[derive(Debug, Clone, Copy)]
struct Watch {
    tenant: u64,
    slot: usize,
    stream: StreamId,
    seq: u64,
}

pub(super) struct Gpu {
    pub(super) config: DaemonConfig,
    pub(super) clock: Clock,
    pub(super) engine: Engine,
    pub(super) rm: Rm,
    pub(super) files: Files,
    tenants: HashMap<u64, Tenant>,
    /// The process and slot of each stream.
    stream_slots: HashMap<StreamId, (u64, usize)>,
    watches: Vec<Watch>,
}

impl Gpu {
    /// `client_numbers` are those of the node's driver.
    pub(super) fn new(config: DaemonConfig, client_numbers: &ClientNumbers) -> Self {
        let mut engine = Engine::new(config.gpu.memory_bytes, config.clock.now());
        engine.account_mut().set_report_lag(config.report_lag_ns);
        let rm = Rm::new(config.gpu.uuid, config.controls, config.timeslice_ns)
            .with_client_numbers(client_numbers.clone());
        Self {
            clock: config.clock,
            config,
            engine,
            rm,
            files: Files::default(),
            tenants: HashMap::new(),
            stream_slots: HashMap::new(),
            watches: Vec::new(),
        }
    }

    pub(super) fn attach(&mut self, key: u64, (pid, uid): (i32, u32), label: &str, region: Region) {
        let owner = self.engine.account_mut().open(pid, label);
        let (groups, graphs, slots) = (Vec::new(), HashMap::new(), HashMap::new());
        self.tenants.insert(key, Tenant { owner, pid, uid, region, groups, graphs, slots, next_graph: 0 });
    }

    pub(super) fn detach(&mut self, key: u64) {
        let Some(tenant) = self.tenants.remove(&key) else { return };
        for group in tenant.groups {
            self.engine.remove_group(group);
            self.rm.unbind(group);
        }
        self.engine.end(tenant.owner);
        // While any process has a descriptor of its file of the control device, the driver keeps what it allocated.
        if self.files.of(key).is_none() {
            self.engine.account_mut().release(tenant.owner);
        }
        self.stream_slots.retain(|_, (tenant, _)| *tenant != key);
        self.watches.retain(|watch| watch.tenant != key);
    }

    fn of_process(&self, pid: i32) -> impl Iterator<Item = &Tenant> {
        self.tenants.values().filter(move |tenant| tenant.pid == pid)
    }

    /// Locks a process at its next call, or unlocks it.
    pub(super) fn set_locked(&self, pid: i32, is_locked: bool) {
        self.of_process(pid).for_each(|tenant| tenant.region.set_locked(is_locked));
    }

    /// A process's user, and whether it is locked; `None` if it does not use this GPU.
    pub(super) fn lock_state(&self, pid: i32) -> Option<(u32, bool)> {
        let tenant = self.of_process(pid).next()?;
        Some((tenant.uid, tenant.region.is_locked()))
    }

    pub(super) fn is_idle(&self, pid: i32) -> bool {
        self.of_process(pid).all(|tenant| self.engine.is_idle(tenant.owner))
    }

    pub(super) fn tenant(&self, key: u64) -> Option<&Tenant> {
        self.tenants.get(&key)
    }

    /// Removes all commands from the rings, and hands each to `take` with its process. They are in the order of each ring.
    pub(super) fn take_commands(&self, mut take: impl FnMut(u64, Record)) {
        for (key, tenant) in &self.tenants {
            let mut any = false;
            while let Some(record) = tenant.region.pop() {
                any = true;
                record.into_iter().for_each(|record| take(*key, record));
            }
            if any {
                tenant.region.wake_full();
            }
        }
    }

    /// Executes one command. A command that refers to objects that do not exist has no effect.
    pub(super) fn execute(&mut self, key: u64, record: Record) -> Option<()> {
        let tenant = self.tenants.get_mut(&key)?;
        let stream = tenant.slots.get(&record.slot).copied();
        let command = match record.order {
            Order::Open { group, kind, priority, last_seq } => {
                let group = tenant.groups.iter().find(|each| each.0 == group).copied()?;
                let stream = self.engine.add_stream(group, kind, priority, last_seq);
                if record.slot < STREAMS {
                    if let Some(former) = tenant.slots.insert(record.slot, stream) {
                        self.stream_slots.remove(&former);
                    }
                    self.stream_slots.insert(stream, (key, record.slot));
                }
                return Some(());
            }
            Order::Word { address, value } => {
                self.engine.set_word(tenant.owner, address, value);
                return Some(());
            }
            Order::Close => {
                self.engine.close_stream(stream?);
                return Some(());
            }
            Order::HostDone { seq } => {
                self.engine.host_done(stream?, seq);
                return Some(());
            }
            Order::Watch { seq } => {
                self.watches.push(Watch { tenant: key, slot: record.slot, stream: stream?, seq });
                return Some(());
            }
            Order::Work(work)
                if work.name().is_some_and(|name| name >= self.engine.account().names(tenant.owner)) =>
            {
                Command::Work(Work::Empty)
            }
            Order::Work(work) => Command::Work(work),
            Order::Graph { graph } => match tenant.graphs.get(&graph) {
                Some(graph) => Command::Graph(graph.clone()),
                None => Command::Work(Work::Empty),
            },
            Order::Mark { event } => Command::Record { tag: event.map_or(u64::MAX, |event| event as u64) },
            Order::Wait { slot, seq } => match tenant.slots.get(&slot) {
                Some(other) => Command::Wait { stream: *other, seq },
                None => Command::Work(Work::Empty),
            },
            Order::Host => Command::Host,
            Order::MemOp(condition) => Command::MemOp(condition),
        };
        self.engine.submit(stream?, record.stamp, command);
        Some(())
    }

    /// Publishes the progress of the timeline to the clients, and wakes those that wait for it. `next` is the time of the next event of
    /// any GPU.
    pub(super) fn publish(&mut self, next: Option<u64>) {
        // Clients compare this with CLOCK_MONOTONIC. On a stepped clock, waiting brings no event.
        let next = next.filter(|_| self.clock == Clock::Real).unwrap_or(u64::MAX);
        let mut completed: HashMap<u64, Vec<(usize, u64)>> = HashMap::new();
        for Advanced { stream, seq } in self.engine.take_advanced() {
            if let Some((tenant, slot)) = self.stream_slots.get(&stream) {
                completed.entry(*tenant).or_default().push((*slot, seq));
            }
        }
        let mut times: HashMap<u64, Vec<(usize, u64)>> = HashMap::new();
        for record in self.engine.take_records() {
            let event = usize::try_from(record.tag).ok().filter(|event| *event < EVENTS);
            if let (Some((tenant, _)), Some(event)) = (self.stream_slots.get(&record.stream), event) {
                times.entry(*tenant).or_default().push((event, record.at_ns));
            }
        }
        let of = |changes: &mut HashMap<u64, Vec<_>>, key: &u64| changes.remove(key).unwrap_or_default();
        for (key, tenant) in &self.tenants {
            tenant.region.publish(next, &of(&mut completed, key), &of(&mut times, key));
        }
        let engine = &self.engine;
        for watch in self
            .watches
            .extract_if(.., |watch| engine.completed(watch.stream).is_none_or(|at| at >= watch.seq))
        {
            if let Some(tenant) = self.tenants.get(&watch.tenant) {
                tenant.region.wake(watch.slot);
            }
        }
    }

    /// The earliest time at which a command that a process waits for can be done. `next` is the time of the next event of any GPU.
    pub(super) fn next_wanted(&self, next: Option<u64>) -> Option<u64> {
        let completion = next.and_then(|next| self.next_completion(next));
        [completion, self.files.next_due()].into_iter().flatten().min()
    }

    fn next_completion(&self, next: u64) -> Option<u64> {
        /// With more watches than this, checking each costs more than waking too early.
        const MANY: usize = 32;
        if self.watches.len() > MANY {
            return Some(next);
        }
        let times = self.watches.iter().filter_map(|watch| self.engine.earliest(watch.stream, watch.seq));
        Some(times.min()?.max(next))
    }

    /// Called before sleeping: from here on urgent clients must wake the daemon.
    pub(super) fn park(&self) {
        self.tenants.values().for_each(|tenant| tenant.region.park());
    }

    pub(super) fn unpark(&self) {
        self.tenants.values().for_each(|tenant| tenant.region.unpark());
    }
}
