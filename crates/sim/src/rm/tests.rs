//! The resource manager, driven by packets; the engine shows their effect.

mod control_faults;

use super::*;
use crate::engine::{Access, Command, OwnerId, StreamId, StreamKind, Work};
use sluice_nvrm::abi::{self, ChannelParams, Command as Number, DisableChannels, GroupParams, class, engine};

const MS: u64 = 1_000_000;
const GROUP: u32 = 0x5c00_0015;

struct Fixture {
    rm: Rm,
    engine: Engine,
}

/// A process with a context and 50,000 queued kernels of 200 µs.
struct Tenant {
    file: FileId,
    client: u32,
    subdevice: u32,
    channels: Vec<u32>,
    owner: OwnerId,
    context: GroupId,
    stream: StreamId,
}

impl Fixture {
    fn new(support: Support) -> Self {
        Self { rm: Rm::new([7; 16], support, params::TIMESLICE_NS), engine: Engine::new(1 << 30, 0) }
    }

    /// Makes an ioctl now. Returns errno, the block, the parameters, and the time of the answer.
    fn ioctl(&mut self, file: FileId, nr: u8, block: &[u8], params: &[u8]) -> (i32, Vec<u8>, Vec<u8>, u64) {
        let packet = wire::encode_request(nr.into(), block, params).unwrap();
        let reply = self.rm.request(self.engine.now(), file, &packet, &mut self.engine);
        let (errno, rest) = reply.bytes.split_first_chunk().unwrap();
        let errno = i32::from_le_bytes(*errno);
        let (block, params) = rest.split_at(block.len());
        (errno, block.to_vec(), params.to_vec(), reply.at_ns)
    }

    fn alloc(&mut self, file: FileId, wanted: AllocBlock, params: &[u8]) -> Result<u32, NvStatus> {
        let (_, block, ..) = self.ioctl(file, Request::ALLOC.nr, &wanted.encode(), params);
        let block = AllocBlock::decode(&block).unwrap();
        if block.status == 0 { Ok(block.object) } else { Err(NvStatus(block.status)) }
    }

    fn control(
        &mut self,
        tenant: &Tenant,
        object: u32,
        number: Number,
        params: &[u8],
    ) -> (NvStatus, Vec<u8>, u64) {
        let block = ControlBlock {
            client: tenant.client,
            object,
            command: number.number,
            params_len: u32::try_from(params.len()).unwrap(),
            ..ControlBlock::default()
        };
        let (errno, block, params, at) =
            self.ioctl(tenant.file, Request::CONTROL.nr, &block.encode(), params);
        assert_eq!(errno, 0);
        (NvStatus(ControlBlock::decode(&block).unwrap().status), params, at)
    }

    /// Disables or enables a tenant's channels now. Returns the time of the answer, up to which the timeline is
    /// computed.
    fn enable(&mut self, tenant: &Tenant, enable: bool) -> u64 {
        let channels = tenant.channels.iter().map(|channel| (tenant.client, *channel)).collect();
        let params = DisableChannels { disable: !enable, only_scheduling: false, channels };
        let before = self.engine.now();
        let (status, _, at) =
            self.control(tenant, tenant.subdevice, Number::DISABLE_CHANNELS, &params.encode());
        assert_eq!(status, NvStatus::OK);
        self.run_to(at);
        at - before
    }

    fn tenant(&mut self) -> Tenant {
        let file = self.rm.open();
        let root = AllocBlock { class: class::ROOT_CLIENT, ..AllocBlock::default() };
        let client = self.alloc(file, root, &[]).unwrap();
        let object =
            |parent, object, class| AllocBlock { client, parent, object, class, ..AllocBlock::default() };
        let device = self.alloc(file, object(client, 0, class::DEVICE), &[0; 56]).unwrap();
        let subdevice = self.alloc(file, object(device, 0, class::SUBDEVICE), &[0; 4]).unwrap();
        let params = GroupParams { engine: engine::GR0 }.encode();
        self.alloc(file, object(device, GROUP, class::CHANNEL_GROUP), &params).unwrap();
        let params = ChannelParams { entries: 1_024, engine: engine::GR0 }.encode();
        let channel = object(GROUP, 0, class::HOPPER_CHANNEL);
        let channels = (0..8).map(|_| self.alloc(file, channel, &params).unwrap()).collect();
        let owner = self.engine.account_mut().open(0, "");
        self.engine.account_mut().name(owner, "spin");
        let context = self.engine.add_group(owner, params::TIMESLICE_NS);
        assert!(self.rm.bind(file, client, GROUP, context, &mut self.engine));
        let stream = self.engine.add_stream(context, StreamKind::NonBlocking, 0, 0);
        for _ in 0..50_000 {
            let work = Work::Kernel { ns: 200_000, sms: params::SMS, name: 0 };
            self.engine.submit(stream, 0, Command::Work(work));
        }
        Tenant { file, client, subdevice, channels, owner, context, stream }
    }

    fn run_to(&mut self, to: u64) {
        self.engine.advance(to);
    }

    fn run_for(&mut self, ns: u64) {
        self.run_to(self.engine.now() + ns);
    }

    fn gpu_ns(&self, tenant: &Tenant) -> u64 {
        self.engine.ledger().processes[tenant.owner.0].gpu_ns
    }
}

#[test]
fn disabled_group_does_not_run_and_continues_where_it_was_when_enabled() {
    let mut fixture = Fixture::new(Support::Full);
    let tenant = fixture.tenant();
    fixture.run_for(10 * MS);
    let took = fixture.enable(&tenant, false);
    assert_eq!(took, params::DISABLE_NS + params::PREEMPT_NS, "the call returns when the group is saved");
    let stopped = fixture.gpu_ns(&tenant);
    // It continued to run while the driver executed the control.
    assert!(stopped > 10 * MS && stopped < 10 * MS + params::DISABLE_NS);
    fixture.run_for(35_000 * MS);
    assert_eq!(fixture.gpu_ns(&tenant), stopped);
    assert_eq!(fixture.enable(&tenant, true), params::ENABLE_NS);
    fixture.run_for(10 * MS);
    let resumed = fixture.gpu_ns(&tenant) - stopped;
    let on = 10 * MS + params::ENABLE_NS - params::ENABLED_AFTER_NS;
    assert_eq!(resumed, on - params::LOAD_NS, "all of the following time except for the restore");
    let again = fixture.engine.completed(tenant.stream).unwrap();
    assert_eq!(again, fixture.gpu_ns(&tenant) / 200_000, "no kernel ran twice or was lost");
}

#[test]
fn disabling_an_idle_group_is_faster() {
    let mut fixture = Fixture::new(Support::Full);
    let (busy, idle) = (fixture.tenant(), fixture.tenant());
    fixture.enable(&busy, false);
    assert_eq!(fixture.enable(&busy, false), params::DISABLE_NS);
    fixture.run_for(10 * MS);
    assert!(fixture.gpu_ns(&idle) > 9 * MS, "the other one runs");
}

#[test]
fn group_is_disabled_only_if_all_its_channels_are() {
    let mut fixture = Fixture::new(Support::Full);
    let mut tenant = fixture.tenant();
    let last = tenant.channels.pop().unwrap();
    fixture.enable(&tenant, false);
    let before = fixture.gpu_ns(&tenant);
    fixture.run_for(10 * MS);
    assert_eq!(fixture.gpu_ns(&tenant), before + 10 * MS);
    tenant.channels = vec![last];
    fixture.enable(&tenant, false);
    let before = fixture.gpu_ns(&tenant);
    fixture.run_for(10 * MS);
    assert_eq!(fixture.gpu_ns(&tenant), before);
}

#[test]
fn controls_run_one_after_the_other() {
    let mut fixture = Fixture::new(Support::Full);
    let (a, b) = (fixture.tenant(), fixture.tenant());
    let slice = abi::timeslice::encode(1);
    let (.., first) = fixture.control(&a, GROUP, Number::SET_TIMESLICE, &slice);
    let (.., second) = fixture.control(&b, GROUP, Number::SET_TIMESLICE, &slice);
    assert_eq!((first, second), (params::SET_TIMESLICE_NS, 2 * params::SET_TIMESLICE_NS));
    fixture.run_to(first);
    let slices = |fixture: &Fixture| {
        fixture.engine.ledger().groups.iter().map(|row| row.timeslice_ns).collect::<Vec<_>>()
    };
    assert_eq!(slices(&fixture), [1_000, params::TIMESLICE_NS], "the second has not taken effect yet");
    fixture.run_to(second);
    assert_eq!(slices(&fixture), [1_000, 1_000]);
    let (status, read, _) = fixture.control(&a, GROUP, Number::GET_TIMESLICE, &[0; 8]);
    assert_eq!((status, abi::timeslice::decode(&read)), (NvStatus::OK, Some(1)));
}

#[test]
fn client_handle_is_valid_on_its_own_file_only() {
    let mut fixture = Fixture::new(Support::Full);
    let (mine, other) = (fixture.tenant(), fixture.tenant());
    let foreign = Tenant { file: other.file, ..mine };
    let slice = abi::timeslice::encode(1);
    let (status, ..) = fixture.control(&foreign, GROUP, Number::SET_TIMESLICE, &slice);
    assert_eq!(status, NvStatus::INVALID_CLIENT);
    let channels = vec![(foreign.client, foreign.channels[0])];
    let params = DisableChannels { disable: true, only_scheduling: false, channels }.encode();
    let (status, ..) = fixture.control(&other, other.subdevice, Number::DISABLE_CHANNELS, &params);
    assert_eq!(status, NvStatus::INVALID_CLIENT, "its channels cannot be named over another file either");
}

#[test]
fn sizes_are_exact_and_objects_of_the_right_kind() {
    let mut fixture = Fixture::new(Support::Full);
    let tenant = fixture.tenant();
    let mut status = |object, number, params: &[u8]| fixture.control(&tenant, object, number, params).0;
    assert_eq!(status(GROUP, Number::SET_TIMESLICE, &[1; 7]), NvStatus::INVALID_ARGUMENT);
    assert_eq!(status(GROUP, Number::SET_TIMESLICE, &[0; 8]), NvStatus::INVALID_ARGUMENT, "a slice of 0");
    assert_eq!(status(GROUP, Number::GPFIFO_SCHEDULE, &[0; 2]), NvStatus::INVALID_ARGUMENT);
    assert_eq!(status(GROUP, Number::GPFIFO_SCHEDULE, &[0; 3]), NvStatus::OK);
    assert_eq!(status(0x77, Number::SET_TIMESLICE, &[1; 8]), NvStatus::INVALID_OBJECT_HANDLE);
    assert_eq!(status(tenant.subdevice, Number::SET_TIMESLICE, &[1; 8]), NvStatus::NOT_SUPPORTED);
    assert_eq!(status(GROUP, Number::MAKE_REALTIME, &[1]), NvStatus::INSUFFICIENT_PERMISSIONS);
    assert_eq!(status(tenant.subdevice, Number::DISABLE_CHANNELS, &[0xff; 536]), NvStatus::INVALID_ARGUMENT);
    for (nr, len) in [(Request::CONTROL.nr, 31), (Request::ALLOC.nr, 40), (0x99, 32)] {
        let (errno, ..) = fixture.ioctl(tenant.file, nr, &vec![0; len], &[]);
        assert_eq!(errno, EINVAL, "function {nr:#x} with a block of {len} bytes");
    }
}

#[test]
fn driver_can_report_success_without_effect_or_refuse() {
    for (support, status) in [(Support::StatusOnly, NvStatus::OK), (Support::None, NvStatus::NOT_SUPPORTED)] {
        let mut fixture = Fixture::new(support);
        let tenant = fixture.tenant();
        let channels = tenant.channels.iter().map(|channel| (tenant.client, *channel)).collect();
        let params = DisableChannels { disable: true, only_scheduling: false, channels }.encode();
        let (got, ..) = fixture.control(&tenant, tenant.subdevice, Number::DISABLE_CHANNELS, &params);
        assert_eq!(got, status);
        let slice = abi::timeslice::encode(7);
        assert_eq!(fixture.control(&tenant, GROUP, Number::SET_TIMESLICE, &slice).0, status);
        fixture.run_for(10 * MS);
        let row = fixture.engine.ledger().groups[0].clone();
        assert_eq!((row.is_enabled, row.timeslice_ns), (true, params::TIMESLICE_NS));
        assert!(fixture.gpu_ns(&tenant) > 9 * MS);
    }
}

#[test]
fn statistics_show_which_controls_had_an_effect() {
    let mut fixture = Fixture::new(Support::Full);
    let (tenant, _other) = (fixture.tenant(), fixture.tenant());
    fixture.run_for(100 * MS);
    let ask = |fixture: &mut Fixture, reset| {
        let params = abi::CtxswStats::query(GROUP, reset);
        let (status, params, _) =
            fixture.control(&tenant, tenant.subdevice, Number::GET_CTXSW_STATS, &params);
        assert_eq!(status, NvStatus::OK);
        abi::CtxswStats::decode(&params).unwrap()
    };
    let stats = ask(&mut fixture, true);
    assert!(stats.saves > 15 && stats.cilp == stats.saves && stats.restores >= stats.saves, "{stats:?}");
    assert_eq!(ask(&mut fixture, false).saves, 0);
    fixture.enable(&tenant, false);
    let stopped = ask(&mut fixture, false).saves;
    fixture.run_for(100 * MS);
    assert_eq!(ask(&mut fixture, false).saves, stopped);
}

#[test]
fn draining_lets_running_kernels_end() {
    let mut fixture = Fixture::new(Support::Full);
    let tenant = fixture.tenant();
    fixture.run_for(MS);
    let channels = tenant.channels.iter().map(|channel| (tenant.client, *channel)).collect();
    let params = DisableChannels { disable: true, only_scheduling: true, channels }.encode();
    let (.., at) = fixture.control(&tenant, tenant.subdevice, Number::DISABLE_CHANNELS, &params);
    fixture.run_to(at);
    assert!(fixture.engine.is_on(tenant.context));
    fixture.run_for(10 * MS);
    let ran = fixture.gpu_ns(&tenant);
    assert!(ran.is_multiple_of(200_000) && ran < 2 * MS, "{ran}");
}

#[test]
fn objects_end_with_their_file_and_with_their_parent() {
    let mut fixture = Fixture::new(Support::Full);
    let (a, b, c) = (fixture.tenant(), fixture.tenant(), fixture.tenant());
    let free = |object| FreeBlock { client: b.client, parent: 0, object, status: 0 }.encode();
    let (_, block, ..) = fixture.ioctl(b.file, Request::FREE.nr, &free(GROUP), &[]);
    assert_eq!(FreeBlock::decode(&block).unwrap().status, 0);
    assert_eq!(fixture.engine.ledger().groups.len(), 2);
    let slice = abi::timeslice::encode(1);
    assert_eq!(
        fixture.control(&b, b.channels[0], Number::SET_TIMESLICE, &slice).0,
        NvStatus::INVALID_OBJECT_HANDLE
    );
    fixture.rm.close(a.file, &mut fixture.engine);
    assert_eq!(fixture.control(&a, GROUP, Number::SET_TIMESLICE, &slice).0, NvStatus::INVALID_CLIENT);
    let left: Vec<u64> = fixture.engine.ledger().groups.iter().map(|row| row.group).collect();
    assert_eq!(left, [c.context.0]);
}

#[test]
fn caller_chosen_handles_are_accepted_once() {
    let mut fixture = Fixture::new(Support::Full);
    let tenant = fixture.tenant();
    let client = tenant.client;
    let object =
        |parent, object, class| AllocBlock { client, parent, object, class, ..AllocBlock::default() };
    let device = fixture.alloc(tenant.file, object(client, 0x5c00_0001, class::DEVICE), &[]).unwrap();
    assert_eq!(device, 0x5c00_0001);
    let again = object(client, 0x5c00_0001, class::DEVICE);
    assert_eq!(fixture.alloc(tenant.file, again, &[]), Err(NvStatus(0x19)));
    let params = GroupParams { engine: 11 }.encode();
    assert_eq!(
        fixture.alloc(tenant.file, object(client, 0, class::CHANNEL_GROUP), &params),
        Err(NvStatus(0x36))
    );
    let wide = object(device, 0, class::CHANNEL_GROUP).encode_with_rights();
    let (_, block, ..) = fixture.ioctl(tenant.file, Request::ALLOC_WITH_RIGHTS.nr, &wide, &params);
    let block = AllocBlock::decode(&block).unwrap();
    assert!(block.status == 0 && block.object != 0, "{block:?}");
}

#[test]
fn controls_before_a_context_exists_apply_to_it() {
    let mut fixture = Fixture::new(Support::Full);
    let tenant = fixture.tenant();
    fixture.enable(&tenant, false);
    fixture.rm.unbind(tenant.context);
    let fresh = fixture.engine.add_group(tenant.owner, params::TIMESLICE_NS);
    assert!(fixture.rm.bind(tenant.file, tenant.client, GROUP, fresh, &mut fixture.engine));
    assert!(!fixture.engine.ledger().groups[1].is_enabled);
    assert!(
        !fixture.rm.bind(tenant.file, tenant.client, GROUP, fresh, &mut fixture.engine),
        "the group has a context"
    );
    let access = Control::Access(Access::Enabled);
    fixture.engine.control(fresh, access);
    assert!(fixture.engine.ledger().groups[1].is_enabled);
}

#[test]
fn handle_information_is_available_on_its_file_even_without_control_support() {
    use sluice_nvrm::abi::handle_info::{CLASS, PARENT, decode, query};
    let mut fixture = Fixture::new(Support::None);
    let tenant = fixture.tenant();
    let mut info = |object, what| {
        let (status, params, _) =
            fixture.control(&tenant, tenant.client, Number::GET_HANDLE_INFO, &query(object, what));
        if status == NvStatus::OK { Ok(decode(&params).unwrap()) } else { Err(status) }
    };
    let device = info(GROUP, PARENT).unwrap();
    assert_eq!((info(tenant.client, CLASS), info(tenant.client, PARENT)), (Ok(class::ROOT_CLIENT), Ok(0)));
    assert_eq!((info(device, CLASS), info(device, PARENT)), (Ok(class::DEVICE), Ok(tenant.client)));
    assert_eq!(
        (info(GROUP, CLASS), info(tenant.subdevice, CLASS)),
        (Ok(class::CHANNEL_GROUP), Ok(class::SUBDEVICE))
    );
    for channel in &tenant.channels {
        assert_eq!((info(*channel, CLASS), info(*channel, PARENT)), (Ok(class::HOPPER_CHANNEL), Ok(GROUP)));
    }
    assert_eq!(info(0x5c00_ffff, CLASS), Err(NvStatus::OBJECT_NOT_FOUND));
    assert_eq!(info(GROUP, 3), Err(NvStatus::INVALID_ARGUMENT));
    let foreign = fixture.tenant();
    let foreign_client = Tenant { client: tenant.client, ..foreign };
    let (status, ..) =
        fixture.control(&foreign_client, tenant.client, Number::GET_HANDLE_INFO, &query(GROUP, CLASS));
    assert_eq!(status, NvStatus::INVALID_CLIENT);
}

#[test]
fn subdevice_reports_its_gpu() {
    let mut fixture = Fixture::new(Support::None);
    let tenant = fixture.tenant();
    let ask = abi::gid::query();
    let (status, params, _) = fixture.control(&tenant, tenant.subdevice, Number::GET_GID_INFO, &ask);
    assert_eq!(
        (status, abi::gid::decode(&params)),
        (NvStatus::OK, Some("GPU-07070707-0707-0707-0707-070707070707"))
    );
    assert_ne!(fixture.control(&tenant, GROUP, Number::GET_GID_INFO, &ask).0, NvStatus::OK);
}
