//! The channel groups observed in a process's ioctls, and their announcement.

use std::os::fd::RawFd;

use sluice_nvrm::abi::{AllocBlock, ControlBlock, FreeBlock, GroupParams, Request, class, engine, timeslice};
use sluice_nvrm::ioctl_observation::{AnnouncementError, ObjectRegistry, ObservedIoctl, observe};

const CLIENT: u32 = 0xc1d0_0007;
const DEVICE: u32 = 0x5c00_0001;
const SUBDEVICE: u32 = 0x5c00_0002;
const GROUP: u32 = 0x5c00_0015;
const FD: RawFd = 9;

/// A process that makes ioctls, and the registry that records them.
#[derive(Default)]
struct Process {
    registry: ObjectRegistry,
    ordinal: Option<u32>,
    /// Uses the long block of allocations.
    with_rights: bool,
}

impl Process {
    /// A process with a client, a device and a subdevice.
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
        let before = self.registry.newest_entry();
        seen.is_some_and(|seen| self.registry.record(&seen, params, fd, self.ordinal, before))
    }

    fn group(&mut self, group: u32, engine: u32) -> bool {
        self.alloc(FD, CLIENT, DEVICE, group, class::CHANNEL_GROUP, &GroupParams { engine }.encode())
    }

    fn channels(&mut self, group: u32, channels: std::ops::Range<u32>) {
        for channel in channels {
            self.alloc(FD, CLIENT, group, channel, class::HOPPER_CHANNEL, &[0; 368]);
        }
    }

    /// A context as libcuda makes it: a compute group, then three copy groups.
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
        let before = self.registry.newest_entry();
        self.free_begun(object, before)
    }

    fn free_begun(&mut self, object: u32, before: u64) -> bool {
        let block = FreeBlock { client: CLIENT, object, ..FreeBlock::default() }.encode();
        observe(Request::FREE, &block)
            .is_some_and(|seen| self.registry.record(&seen, &[], FD, self.ordinal, before))
    }

    fn groups(&self) -> Vec<u32> {
        self.registry.groups().into_iter().map(|found| found.handles.channel_group).collect()
    }
}

#[test]
fn only_the_compute_group_of_a_context_is_found_with_its_channels() {
    for with_rights in [false, true] {
        let mut process = Process { with_rights, ..Process::started() };
        process.context(GROUP);
        let found = process.registry.groups();
        assert_eq!(found.len(), 1);
        let handles = &found[0].handles;
        assert_eq!((handles.client, handles.subdevice, handles.channel_group), (CLIENT, SUBDEVICE, GROUP));
        assert_eq!(handles.channels, (GROUP + 1..GROUP + 9).collect::<Vec<_>>());
        assert_eq!((found[0].fd, found[0].device_ordinal, found[0].has_unknown_engine), (FD, Some(0), false));
    }
}

#[test]
fn group_without_channels_is_left_out() {
    let mut process = Process::started();
    process.group(GROUP, engine::GR0);
    assert_eq!(process.groups(), [0_u32; 0]);
    process.channels(GROUP, 0x50..0x51);
    assert_eq!(process.groups(), [GROUP]);
}

#[test]
fn refused_ioctls_are_not_observed() {
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
    assert_eq!(observe(Request::ALLOC, &other.encode()), None, "a copy engine is not needed");
}

#[test]
fn no_more_parameter_bytes_are_read_than_the_program_passed() {
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
        let before = process.registry.newest_entry();
        process.registry.record(&seen, &params[..read.unwrap_or(0)], FD, process.ordinal, before);
        process.channels(GROUP, GROUP + 1..GROUP + 2);
        let announced = process.registry.announcement(0, false).map(|announced| announced.contexts.len());
        assert_eq!(announced, if read.is_some() { Ok(1) } else { Err(AnnouncementError::UnknownEngine) });
    }
}

#[test]
fn serialised_or_missing_parameters_are_not_read() {
    let group =
        AllocBlock { client: CLIENT, object: GROUP, class: class::CHANNEL_GROUP, ..AllocBlock::default() };
    let given = AllocBlock { params: 0x1000, ..group };
    let params = |seen: Option<ObservedIoctl>| {
        seen.and_then(|seen| seen.params()).map(|params| (params.address, params.len))
    };
    assert_eq!(params(observe(Request::ALLOC, &given.encode())), Some((0x1000, 16)));
    assert_eq!(params(observe(Request::ALLOC, &group.encode())), None);
    let packed = AllocBlock { flags: AllocBlock::SERIALISED, ..given };
    assert_eq!(params(observe(Request::ALLOC_WITH_RIGHTS, &packed.encode_with_rights())), None);
}

#[test]
fn freed_object_is_removed_with_its_descendants() {
    let three = || {
        let mut process = Process::started();
        [0x100, 0x200, 0x300].into_iter().for_each(|group| process.context(group));
        process
    };
    let mut process = three();
    assert!(process.free(0x200));
    assert_eq!(process.groups(), [0x100, 0x300]);
    assert!(!process.free(0x201), "it was removed with its group");
    assert!(process.free(DEVICE));
    assert_eq!(process.groups(), [0_u32; 0]);
    let mut process = three();
    assert!(process.free(CLIENT));
    assert_eq!(process.groups(), [0_u32; 0]);
}

#[test]
fn channel_made_later_is_added_to_its_group() {
    let mut process = Process::started();
    process.context(GROUP);
    assert!(process.alloc(FD, CLIENT, GROUP, 0x77, class::HOPPER_CHANNEL, &[]));
    assert_eq!(process.registry.groups()[0].handles.channels.last(), Some(&0x77));
    assert!(process.free(GROUP + 3));
    assert_eq!(process.registry.groups()[0].handles.channels.len(), 8);
}

#[test]
fn free_that_began_before_its_handle_was_reused_does_not_remove_the_new_object() {
    let mut process = Process::started();
    process.context(GROUP);
    let before = process.registry.newest_entry();
    // Another thread makes a group with that handle between the driver's answer to the free and its observation.
    process.context(GROUP);
    assert!(!process.free_begun(GROUP, before));
    assert_eq!(process.groups(), [GROUP]);
}

#[test]
fn second_object_with_a_handle_replaces_the_first() {
    let mut process = Process::started();
    process.context(GROUP);
    process.group(GROUP, engine::GR0);
    assert_eq!(process.groups(), [0_u32; 0], "the channels belonged to the first group");
    process.channels(GROUP, 0x90..0x92);
    assert_eq!(process.registry.groups()[0].handles.channels, [0x90, 0x91]);
    process.client(CLIENT);
    assert_eq!(process.groups(), [0_u32; 0], "the groups belonged to the first client");
}

#[test]
fn group_made_outside_a_context_call_has_the_ordinal_known_for_its_device() {
    let mut process = Process { ordinal: None, ..Process::started() };
    process.context(0x100);
    assert_eq!(process.registry.groups()[0].device_ordinal, None);
    process.ordinal = Some(3);
    process.context(0x200);
    process.ordinal = None;
    process.context(0x300);
    let owners: Vec<_> = process.registry.groups().into_iter().map(|found| found.device_ordinal).collect();
    assert_eq!(owners, [Some(3); 3]);
}

#[test]
fn time_slice_set_by_the_process_is_recorded() {
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
    process.registry.record(&seen, &timeslice::encode(2048), FD, None, 0);
    assert_eq!(process.registry.groups()[0].timeslice_us, Some(2048));
    let other = ControlBlock { command: 0xa06c_0104, ..block };
    assert_eq!(observe(Request::CONTROL, &other.encode()), None);
}

#[test]
fn display_names_every_group() {
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
fn announcement_lists_each_descriptor_once() {
    let mut process = Process::started();
    process.context(0x100);
    process.context(0x200);
    process.alloc(12, 0, 0, 0xc1d0_0008, class::ROOT_CLIENT, &[]);
    process.alloc(12, 0xc1d0_0008, 0xc1d0_0008, 1, class::DEVICE, &[]);
    process.alloc(12, 0xc1d0_0008, 1, 2, class::SUBDEVICE, &[]);
    process.alloc(12, 0xc1d0_0008, 1, 3, class::CHANNEL_GROUP, &GroupParams { engine: 1 }.encode());
    process.alloc(12, 0xc1d0_0008, 3, 4, class::HOPPER_CHANNEL, &[]);
    let announced = process.registry.announcement(0, true).unwrap();
    assert_eq!(announced.descriptors, [FD, 12]);
    let contexts: Vec<_> =
        announced.contexts.iter().map(|context| (context.channel_group, context.descriptor)).collect();
    assert_eq!(contexts, [(0x100, 0), (0x200, 0), (3, 1)]);
}

#[test]
fn announcement_contains_only_the_groups_of_its_device() {
    let mut process = Process::started();
    process.context(0x100);
    process.ordinal = Some(1);
    process.alloc(FD, CLIENT, CLIENT, 0x5d00_0001, class::DEVICE, &[]);
    process.alloc(FD, CLIENT, 0x5d00_0001, 0x5d00_0002, class::SUBDEVICE, &[]);
    process.alloc(FD, CLIENT, 0x5d00_0001, 0x900, class::CHANNEL_GROUP, &GroupParams { engine: 1 }.encode());
    process.channels(0x900, 0x901..0x903);
    let groups = |ordinal| {
        let announced = process.registry.announcement(ordinal, false).unwrap();
        announced
            .contexts
            .into_iter()
            .map(|context| (context.channel_group, context.subdevice))
            .collect::<Vec<_>>()
    };
    assert_eq!(groups(0), [(0x100, SUBDEVICE)]);
    assert_eq!(groups(1), [(0x900, 0x5d00_0002)]);
    assert_eq!(groups(2), []);
}

#[test]
fn no_group_is_announced_if_one_cannot_be_controlled() {
    let with = |change: &dyn Fn(&mut Process)| {
        let mut process = Process::started();
        process.context(0x100);
        change(&mut process);
        process.registry.announcement(0, false)
    };
    assert!(with(&|_| {}).is_ok());
    let no_subdevice = |process: &mut Process| assert!(process.free(SUBDEVICE));
    assert_eq!(with(&no_subdevice), Err(AnnouncementError::NoSubdevice));
    let large = |process: &mut Process| process.channels(0x100, 0x1000..0x1039);
    assert_eq!(with(&large), Err(AnnouncementError::TooManyChannels(65)));
    let unread = |process: &mut Process| {
        process.alloc(FD, CLIENT, DEVICE, 0x500, class::CHANNEL_GROUP, &[]);
        process.channels(0x500, 0x501..0x502);
    };
    assert_eq!(with(&unread), Err(AnnouncementError::UnknownEngine));
    let many = |process: &mut Process| (2..66).for_each(|at| process.context(at * 0x100));
    assert_eq!(with(&many), Err(AnnouncementError::TooManyGroups(65)));
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
    assert_eq!(with(&strange), Err(AnnouncementError::UnknownDevice));
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
    assert_eq!(with(&scattered), Err(AnnouncementError::TooManyDescriptors(9)));
}

#[test]
fn unknown_device_is_accepted_if_the_process_sees_only_one() {
    let mut process = Process { ordinal: None, ..Process::started() };
    process.context(0x100);
    assert_eq!(process.registry.announcement(0, false), Err(AnnouncementError::UnknownDevice));
    assert_eq!(process.registry.announcement(0, true).unwrap().contexts.len(), 1);
}
