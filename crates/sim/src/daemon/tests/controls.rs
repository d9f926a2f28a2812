//! The control device over its socket, from the process that opened it and from others.

use super::*;
use crate::client::ControlGroup;
use sluice_nvrm::abi::{
    AllocBlock, ChannelParams, Command, ControlBlock, GroupParams, Request, class, engine, timeslice,
};
use sluice_nvrm::transport::{Transport, open_transport, wire};
use sluice_nvrm::{ControlError, Controls, NvStatus};
use sluice_sys::clock::monotonic_ns;
use std::os::fd::{AsFd, OwnedFd};

/// A process that has allocated its channel group as a driver does.
struct Owner {
    gpu: Arc<Gpu>,
    /// The program's descriptor, which is closed with the owner.
    file: OwnedFd,
    client: u32,
    subdevice: u32,
    group: u32,
    channels: Vec<u32>,
    context: u64,
    name: usize,
}

fn alloc(over: &dyn Transport, wanted: AllocBlock, params: &mut [u8]) -> u32 {
    let mut block = wanted.encode();
    over.escape(Request::ALLOC.nr, &mut block, params).unwrap();
    let block = AllocBlock::decode(&block).unwrap();
    assert_eq!(block.status, 0);
    block.object
}

impl Owner {
    fn new(bench: &Bench, label: &str) -> Self {
        let gpu = Arc::new(Gpu::connect(bench.handle.socket(), label).unwrap());
        let file = gpu.open_control().unwrap();
        let over = open_transport(file.try_clone().unwrap(), true).unwrap();
        let root = AllocBlock { class: class::ROOT_CLIENT, ..AllocBlock::default() };
        let client = alloc(&*over, root, &mut []);
        let object = |parent, class| AllocBlock { client, parent, class, ..AllocBlock::default() };
        let device = alloc(&*over, object(client, class::DEVICE), &mut [0; 56]);
        let subdevice = alloc(&*over, object(device, class::SUBDEVICE), &mut [0; 4]);
        let mut params = GroupParams { engine: engine::GR0 }.encode();
        let group = alloc(&*over, object(device, class::CHANNEL_GROUP), &mut params);
        let mut params = ChannelParams { entries: 1_024, engine: engine::GR0 }.encode();
        let mut channel = || alloc(&*over, object(group, class::HOPPER_CHANNEL), &mut params);
        let channels = (0..8).map(|_| channel()).collect();
        let context = gpu.open_context(Some(ControlGroup { client, group })).unwrap();
        let name = gpu.name("spin").unwrap();
        Self { gpu, file, client, subdevice, group, channels, context, name }
    }

    /// The controls over a copy of the descriptor, as another process receives it.
    fn copied_controls(&self) -> Controls {
        Controls::from_descriptor(self.file.try_clone().unwrap(), true).unwrap()
    }

    fn stream(&self) -> Stream {
        Stream::open(&self.gpu, self.context, StreamKind::NonBlocking, 0).unwrap()
    }

    fn kernel(&self, us: u64) -> StreamCommand {
        StreamCommand::Work(Work::Kernel { ns: us * 1_000, sms: 132, name: self.name })
    }
}

#[test]
fn holder_of_the_descriptor_can_disable_and_enable_its_owners_groups() {
    let bench = daemon();
    let owner = Owner::new(&bench, "me");
    let controls = owner.copied_controls();
    controls.set_timeslice(owner.client, owner.group, 77).unwrap();
    assert_eq!(controls.timeslice(owner.client, owner.group).unwrap(), 77);
    controls.disable(owner.client, owner.subdevice, &owner.channels).unwrap();
    let rows = client::ledger(bench.handle.socket()).unwrap().groups;
    assert_eq!((rows.len(), rows[0].timeslice_ns, rows[0].is_enabled), (1, 77_000, false));
    let stream = owner.stream();
    let mark = stream.submit(owner.kernel(100), None).unwrap();
    // Neither allocations nor queries of memory wait for a stopped group.
    owner.gpu.allocate(1 << 30).unwrap();
    owner.gpu.memory().unwrap();
    let other = bench.process("other");
    let other_stream = other.stream(StreamKind::NonBlocking);
    other_stream.submit(other.kernel(5_000), None).unwrap();
    other.gpu.wait_for(other_stream.mark()).unwrap();
    assert!(!owner.gpu.is_done(mark));
    controls.enable(owner.client, owner.subdevice, &owner.channels).unwrap();
    owner.gpu.wait_for(mark).unwrap();
    assert_eq!(bench.row("me").kernels_completed, 1);
}

#[test]
fn two_holders_of_one_descriptor_get_their_own_answers() {
    let bench = daemon();
    let owner = Owner::new(&bench, "me");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let controls = owner.copied_controls();
            let owner = &owner;
            scope.spawn(move || {
                for _ in 0..200 {
                    let wrong = controls.timeslice(owner.client, 0x77);
                    assert!(matches!(wrong, Err(ControlError::Refused(NvStatus::INVALID_OBJECT_HANDLE))));
                    assert_eq!(controls.timeslice(owner.client, owner.group).unwrap(), 2_048);
                }
            });
        }
    });
}

#[test]
fn memory_request_waits_while_controls_are_in_progress() {
    let bench = daemon();
    let (owner, other) = (Owner::new(&bench, "me"), bench.process("other"));
    let block = ControlBlock {
        client: owner.client,
        object: owner.group,
        command: Command::SET_TIMESLICE.number,
        params_len: Command::SET_TIMESLICE.params_len,
        ..ControlBlock::default()
    };
    let packet = wire::encode_request(Request::CONTROL.nr.into(), &block.encode(), &timeslice::encode(7));
    let (packet, controls) = (packet.unwrap(), 100);
    let before = monotonic_ns();
    for _ in 0..controls {
        let sent = sluice_sys::socket::send_with_fds(owner.file.as_fd(), &packet, &[]);
        assert_eq!(sent.unwrap(), packet.len());
    }
    // Queries do not wait; they are answered after the packets were read.
    other.gpu.memory().unwrap();
    other.gpu.allocate(1).unwrap();
    assert!(monotonic_ns() - before >= controls * crate::params::SET_TIMESLICE_NS);
}

#[test]
fn file_of_another_process_does_not_reach_the_client() {
    let bench = daemon();
    let (owner, stranger) = (Owner::new(&bench, "me"), Owner::new(&bench, "stranger"));
    let refused = stranger.copied_controls().set_timeslice(owner.client, owner.group, 1);
    assert!(matches!(refused, Err(ControlError::Refused(NvStatus::INVALID_CLIENT))), "{refused:?}");
}

#[test]
fn memory_of_a_dead_process_lasts_until_its_descriptor_is_closed_everywhere() {
    let bench = daemon();
    let owner = Owner::new(&bench, "me");
    owner.gpu.allocate(1_000).unwrap();
    let stream = owner.stream();
    stream.submit(owner.kernel(3_600_000_000), None).unwrap();
    let (client, group, controls) = (owner.client, owner.group, owner.copied_controls());
    controls.disable(client, owner.subdevice, &owner.channels).unwrap();
    drop((stream, owner));
    let other = bench.process("other");
    let used = crate::params::MEMORY_BYTES - other.gpu.memory().unwrap().0;
    assert_eq!(used, 2 * crate::params::CONTEXT_BYTES + 1_000);
    assert!(bench.row("me").ended, "the process and its kernels have ended");
    // The objects still exist, although controls of them have no effect.
    controls.set_timeslice(client, group, 5).unwrap();
    let stream = other.stream(StreamKind::NonBlocking);
    stream.submit(other.kernel(100), None).unwrap();
    other.gpu.wait_for(stream.mark()).unwrap();
    drop(controls);
    let used = crate::params::MEMORY_BYTES - other.gpu.memory().unwrap().0;
    assert_eq!(used, crate::params::CONTEXT_BYTES);
    assert_eq!(bench.row("me").memory_bytes, 0);
}
