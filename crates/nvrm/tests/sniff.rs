//! What is learnt from a process's ioctls, and what is announced of it.
#![allow(clippy::unwrap_used, reason = "a helper that panics fails its test")]

use std::os::fd::RawFd;

use sluice_nvrm::abi::{AllocBlock, ControlBlock, FreeBlock, GroupParams, Request, class, engine, timeslice};
use sluice_nvrm::sniff::{Registry, Seen, Unannounced, observe};

const CLIENT: u32 = 0xc1d0_0007;
const DEVICE: u32 = 0x5c00_0001;
const SUBDEVICE: u32 = 0x5c00_0002;
const GROUP: u32 = 0x5c00_0015;
const FD: RawFd = 9;

/// A process that makes ioctls, and the registry that sees them.
#[derive(Default)]
struct Process {
    registry: Registry,
    ordinal: Option<u32>,
    /// Long blocks where the driver has both.
    with_rights: bool,
}

impl Process {
    /// With a client, a device and a subdevice.
    fn started() -> Self {
        let mut process = Self { ordinal: Some(0), ..Self::default() };
        process.client(CLIENT);
        process.alloc(FD, CLIENT, CLIENT, DEVICE, class::DEVICE, &[]);
        process.alloc(FD, CLIENT, DEVICE, SUBDEVICE, class::SUBDEVICE, &[]);
        process
    }

    fn client(&mut self, client: u32) {
        self.alloc(FD, 0, 0, client, class::ROOT_CLIENT, &[]);
    }

    fn alloc(&mut self, fd: RawFd, client: u32, parent: u32, object: u32, class: u32, params: &[u8]) -> bool {
        let params_len = u32::try_from(params.len()).unwrap();
        let block =
            AllocBlock { client, parent, object, class, params: 0x1000, params_len, ..AllocBlock::default() };
        let seen = if self.with_rights {
            observe(Request::ALLOC_WITH_RIGHTS, &block.encode_with_rights())
        } else {
            observe(Request::ALLOC, &block.encode())
        };
        let before = self.registry.changes();
        seen.is_some_and(|seen| self.registry.note(&seen, params, fd, self.ordinal, before))
    }

    fn group(&mut self, group: u32, engine: u32) -> bool {
        self.alloc(FD, CLIENT, DEVICE, group, class::CHANNEL_GROUP, &GroupParams { engine }.encode())
    }

    fn channels(&mut self, group: u32, channels: std::ops::Range<u32>) {
        for channel in channels {
            self.alloc(FD, CLIENT, group, channel, class::HOPPER_CHANNEL, &[0; 368]);
        }
    }

    /// A context as libcuda makes them: compute, then three copy engines.
    fn context(&mut self, group: u32) {
        self.group(group, engine::GR0);
        self.channels(group, group + 1..group + 9);
        for copy in 0..3 {
            let group = group + 0x20 + 8 * copy;
            self.group(group, engine::COPY0 + 2 + copy);
            self.channels(group, group + 1..group + 5);
        }
    }

    fn free(&mut self, object: u32) -> bool {
        let before = self.registry.changes();
        self.free_begun(object, before)
    }

    fn free_begun(&mut self, object: u32, before: u64) -> bool {
        let block = FreeBlock { client: CLIENT, object, ..FreeBlock::default() }.encode();
        observe(Request::FREE, &block)
            .is_some_and(|seen| self.registry.note(&seen, &[], FD, self.ordinal, before))
    }

    fn groups(&self) -> Vec<u32> {
        self.registry.groups().into_iter().map(|found| found.handles.channel_group).collect()
    }
}

#[test]
fn of_a_contexts_four_groups_the_compute_one_is_found_with_its_channels() {
    for with_rights in [false, true] {
        let mut process = Process { with_rights, ..Process::started() };
        process.context(GROUP);
        let found = process.registry.groups();
        assert_eq!(found.len(), 1);
        let handles = &found[0].handles;
        assert_eq!((handles.client, handles.subdevice, handles.channel_group), (CLIENT, SUBDEVICE, GROUP));
        assert_eq!(handles.channels, (GROUP + 1..GROUP + 9).collect::<Vec<_>>());
        assert_eq!((found[0].fd, found[0].owner, found[0].uncertain), (FD, Some(0), false));
    }
}

#[test]
fn a_group_without_channels_is_not_spoken_of() {
    let mut process = Process::started();
    process.group(GROUP, engine::GR0);
    assert_eq!(process.groups(), [0_u32; 0]);
    process.channels(GROUP, 0x50..0x51);
    assert_eq!(process.groups(), [GROUP]);
}

#[test]
fn what_the_driver_refused_has_not_happened() {
    let block =
        AllocBlock { client: CLIENT, object: GROUP, class: class::CHANNEL_GROUP, ..AllocBlock::default() };
    assert!(observe(Request::ALLOC, &block.encode()).is_some());
    assert_eq!(observe(Request::ALLOC, &AllocBlock { status: 0x1b, ..block }.encode()), None);
    assert_eq!(
        observe(Request::ALLOC_WITH_RIGHTS, &AllocBlock { status: 1, ..block }.encode_with_rights()),
        None
    );
    assert_eq!(observe(Request::FREE, &FreeBlock { status: 0x33, ..FreeBlock::default() }.encode()), None);
    assert_eq!(observe(Request::ALLOC, &block.encode()[..31]), None);
    let other = AllocBlock { class: 0xc8b5, ..block };
    assert_eq!(observe(Request::ALLOC, &other.encode()), None, "an object of no concern");
}

#[test]
fn of_parameters_of_another_branch_no_more_is_read_than_the_program_gave() {
    let given = |params_len| {
        let block = AllocBlock {
            client: CLIENT,
            parent: DEVICE,
            object: GROUP,
            class: class::CHANNEL_GROUP,
            params: 0x1000,
            params_len,
            ..AllocBlock::default()
        };
        observe(Request::ALLOC, &block.encode()).unwrap()
    };
    for (params_len, read) in [(0, Some(16)), (16, Some(16)), (20, Some(16)), (64, Some(16)), (12, None)] {
        let seen = given(params_len);
        assert_eq!(seen.params().map(|params| params.len), read, "{params_len} bytes");
        let mut process = Process::started();
        let params = GroupParams { engine: engine::GR0 }.encode();
        let before = process.registry.changes();
        process.registry.note(&seen, &params[..read.unwrap_or(0)], FD, process.ordinal, before);
        process.channels(GROUP, GROUP + 1..GROUP + 2);
        let told = process.registry.announcement(0, false).map(|told| told.contexts.len());
        assert_eq!(told, if read.is_some() { Ok(1) } else { Err(Unannounced::UnknownEngine) });
    }
}

#[test]
fn parameters_that_are_serialised_or_missing_are_not_read() {
    let group =
        AllocBlock { client: CLIENT, object: GROUP, class: class::CHANNEL_GROUP, ..AllocBlock::default() };
    let given = AllocBlock { params: 0x1000, ..group };
    let params =
        |seen: Option<Seen>| seen.and_then(|seen| seen.params()).map(|params| (params.address, params.len));
    assert_eq!(params(observe(Request::ALLOC, &given.encode())), Some((0x1000, 16)));
    assert_eq!(params(observe(Request::ALLOC, &group.encode())), None);
    let packed = AllocBlock { flags: AllocBlock::SERIALISED, ..given };
    assert_eq!(params(observe(Request::ALLOC_WITH_RIGHTS, &packed.encode_with_rights())), None);
}

#[test]
fn with_a_group_its_channels_go_and_with_a_device_or_client_all_of_theirs() {
    let three = || {
        let mut process = Process::started();
        [0x100, 0x200, 0x300].into_iter().for_each(|group| process.context(group));
        process
    };
    let mut process = three();
    assert!(process.free(0x200));
    assert_eq!(process.groups(), [0x100, 0x300]);
    assert!(!process.free(0x201), "it went with its group");
    assert!(process.free(DEVICE));
    assert_eq!(process.groups(), [0_u32; 0]);
    let mut process = three();
    assert!(process.free(CLIENT));
    assert_eq!(process.groups(), [0_u32; 0]);
}

#[test]
fn a_channel_made_later_joins_its_group() {
    let mut process = Process::started();
    process.context(GROUP);
    assert!(process.alloc(FD, CLIENT, GROUP, 0x77, class::HOPPER_CHANNEL, &[]));
    assert_eq!(process.registry.groups()[0].handles.channels.last(), Some(&0x77));
    assert!(process.free(GROUP + 3));
    assert_eq!(process.registry.groups()[0].handles.channels.len(), 8);
}

#[test]
fn a_free_that_began_before_its_handle_was_used_again_does_not_take_the_new_object() {
    let mut process = Process::started();
    process.context(GROUP);
    let before = process.registry.changes();
    // Between the driver's answer to the free and our hearing of it, another thread makes a group of that handle.
    process.context(GROUP);
    assert!(!process.free_begun(GROUP, before));
    assert_eq!(process.groups(), [GROUP]);
}

#[test]
fn a_handle_seen_made_twice_means_the_second_object() {
    let mut process = Process::started();
    process.context(GROUP);
    process.group(GROUP, engine::GR0);
    assert_eq!(process.groups(), [0_u32; 0], "the first one's channels are not the second one's");
    process.channels(GROUP, 0x90..0x92);
    assert_eq!(process.registry.groups()[0].handles.channels, [0x90, 0x91]);
    process.client(CLIENT);
    assert_eq!(process.groups(), [0_u32; 0], "a client made anew has nothing of the old one's");
}

#[test]
fn a_group_made_outside_a_context_call_belongs_to_the_device_that_its_parent_is_known_for() {
    let mut process = Process { ordinal: None, ..Process::started() };
    process.context(0x100);
    assert_eq!(process.registry.groups()[0].owner, None);
    process.ordinal = Some(3);
    process.context(0x200);
    process.ordinal = None;
    process.context(0x300);
    let owners: Vec<_> = process.registry.groups().into_iter().map(|found| found.owner).collect();
    assert_eq!(owners, [Some(3); 3]);
}

#[test]
fn the_slice_that_the_process_sets_itself_is_known() {
    let mut process = Process::started();
    process.context(GROUP);
    assert_eq!(process.registry.groups()[0].timeslice_us, None);
    let block = ControlBlock {
        client: CLIENT,
        object: GROUP,
        command: 0xa06c_0103,
        params: 0x1000,
        params_len: 8,
        ..ControlBlock::default()
    };
    let seen = observe(Request::CONTROL, &block.encode()).unwrap();
    assert_eq!(seen.params().map(|params| params.len), Some(8));
    process.registry.note(&seen, &timeslice::encode(2048), FD, None, 0);
    assert_eq!(process.registry.groups()[0].timeslice_us, Some(2048));
    let other = ControlBlock { command: 0xa06c_0104, ..block };
    assert_eq!(observe(Request::CONTROL, &other.encode()), None);
}

#[test]
fn a_log_can_name_every_group() {
    let mut process = Process::started();
    process.group(GROUP, engine::GR0);
    process.channels(GROUP, 0x50..0x52);
    process.group(0x60, 11);
    assert_eq!(
        process.registry.to_string(),
        "client 0xc1d00007 group 0x60 channels 0 engine 11 slice_us unknown; \
         client 0xc1d00007 group 0x5c000015 channels 2 engine 1 slice_us unknown"
    );
}

#[test]
fn an_announcement_names_each_descriptor_once() {
    let mut process = Process::started();
    process.context(0x100);
    process.context(0x200);
    process.alloc(12, 0, 0, 0xc1d0_0008, class::ROOT_CLIENT, &[]);
    process.alloc(12, 0xc1d0_0008, 0xc1d0_0008, 1, class::DEVICE, &[]);
    process.alloc(12, 0xc1d0_0008, 1, 2, class::SUBDEVICE, &[]);
    process.alloc(12, 0xc1d0_0008, 1, 3, class::CHANNEL_GROUP, &GroupParams { engine: 1 }.encode());
    process.alloc(12, 0xc1d0_0008, 3, 4, class::HOPPER_CHANNEL, &[]);
    let told = process.registry.announcement(0, true).unwrap();
    assert_eq!(told.descriptors, [FD, 12]);
    let contexts: Vec<_> =
        told.contexts.iter().map(|context| (context.channel_group, context.descriptor)).collect();
    assert_eq!(contexts, [(0x100, 0), (0x200, 0), (3, 1)]);
}

#[test]
fn a_device_is_told_of_its_own_groups_only() {
    let mut process = Process::started();
    process.context(0x100);
    process.ordinal = Some(1);
    process.alloc(FD, CLIENT, CLIENT, 0x5d00_0001, class::DEVICE, &[]);
    process.alloc(FD, CLIENT, 0x5d00_0001, 0x5d00_0002, class::SUBDEVICE, &[]);
    process.alloc(FD, CLIENT, 0x5d00_0001, 0x900, class::CHANNEL_GROUP, &GroupParams { engine: 1 }.encode());
    process.channels(0x900, 0x901..0x903);
    let groups = |ordinal| {
        let told = process.registry.announcement(ordinal, false).unwrap();
        told.contexts
            .into_iter()
            .map(|context| (context.channel_group, context.subdevice))
            .collect::<Vec<_>>()
    };
    assert_eq!(groups(0), [(0x100, SUBDEVICE)]);
    assert_eq!(groups(1), [(0x900, 0x5d00_0002)]);
    assert_eq!(groups(2), []);
}

#[test]
fn if_one_group_cannot_be_controlled_none_is_announced() {
    let with = |change: &dyn Fn(&mut Process)| {
        let mut process = Process::started();
        process.context(0x100);
        change(&mut process);
        process.registry.announcement(0, false)
    };
    assert!(with(&|_| {}).is_ok());
    let no_subdevice = |process: &mut Process| assert!(process.free(SUBDEVICE));
    assert_eq!(with(&no_subdevice), Err(Unannounced::NoSubdevice));
    let large = |process: &mut Process| process.channels(0x100, 0x1000..0x1039);
    assert_eq!(with(&large), Err(Unannounced::Channels(65)));
    let unread = |process: &mut Process| {
        process.alloc(FD, CLIENT, DEVICE, 0x500, class::CHANNEL_GROUP, &[]);
        process.channels(0x500, 0x501..0x502);
    };
    assert_eq!(with(&unread), Err(Unannounced::UnknownEngine));
    let many = |process: &mut Process| (2..66).for_each(|at| process.context(at * 0x100));
    assert_eq!(with(&many), Err(Unannounced::Groups(65)));
    let strange = |process: &mut Process| {
        process.ordinal = None;
        process.alloc(FD, CLIENT, CLIENT, 0x5d00_0001, class::DEVICE, &[]);
        process.alloc(
            FD,
            CLIENT,
            0x5d00_0001,
            0x900,
            class::CHANNEL_GROUP,
            &GroupParams { engine: 1 }.encode(),
        );
        process.channels(0x900, 0x901..0x902);
    };
    assert_eq!(with(&strange), Err(Unannounced::UnknownDevice));
    let scattered = |process: &mut Process| {
        for fd in 20..28_i32 {
            let client = 0xc1d0_1000 + fd.unsigned_abs();
            process.alloc(fd, 0, 0, client, class::ROOT_CLIENT, &[]);
            process.alloc(fd, client, client, 1, class::DEVICE, &[]);
            process.alloc(fd, client, 1, 2, class::SUBDEVICE, &[]);
            process.alloc(fd, client, 1, 3, class::CHANNEL_GROUP, &GroupParams { engine: 1 }.encode());
            process.alloc(fd, client, 3, 4, class::HOPPER_CHANNEL, &[]);
        }
    };
    assert_eq!(with(&scattered), Err(Unannounced::Descriptors(9)));
}

#[test]
fn a_process_of_one_device_need_not_say_whose_a_group_is() {
    let mut process = Process { ordinal: None, ..Process::started() };
    process.context(0x100);
    assert_eq!(process.registry.announcement(0, false), Err(Unannounced::UnknownDevice));
    assert_eq!(process.registry.announcement(0, true).unwrap().contexts.len(), 1);
}
