//! A driver that the test holds the strings of: it says when each control ends, and how.

use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, getsockname, socketpair};
use sluice_comm::attach::ContextHandles;
use sluice_core::channel_groups::ControlOp;
use sluice_pod_manager::channel_groups::{Cause, ChannelControl, ControlDriver, ControlFailure};
use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex};

/// A control as the driver sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Slice(u32, u64),
    Stop(u32),
    Start(u32),
}

impl Call {
    pub fn group(self) -> u32 {
        match self {
            Self::Slice(group, _) | Self::Stop(group) | Self::Start(group) => group,
        }
    }
}

#[derive(Default)]
struct State {
    calls: Vec<Call>,
    ended: usize,
    /// Calls wait until they are let go.
    holds: bool,
    let_go: usize,
    failures: HashMap<u32, ControlFailure>,
    /// Groups whose slices cannot be set.
    unsliceable: HashSet<u32>,
    /// A self-test has found that no slice can be set.
    unsliced: bool,
    /// Enabled, and slice.
    groups: HashMap<u32, (bool, u64)>,
    /// Groups that run although they are disabled, and how often the counts of switches were read.
    runs_while_disabled: HashMap<u32, u32>,
    /// Groups with work, and how often their counts of switches were read while they were enabled.
    working: HashMap<u32, u32>,
}

/// All descriptors lead here, but those of files.
#[derive(Clone, Default)]
pub struct FakeDriver(Arc<(Mutex<State>, Condvar)>);

impl FakeDriver {
    /// From now on controls end only when [`Self::let_one_go`] says so.
    pub fn hold(&self) {
        let mut state = self.0.0.lock().unwrap();
        (state.holds, state.let_go) = (true, state.ended);
    }

    pub fn let_all_go(&self) {
        self.0.0.lock().unwrap().holds = false;
        self.0.1.notify_all();
    }

    /// Lets the control that is on its way end, once it is there; waits until it has.
    pub fn let_one_go(&self) -> Call {
        let call = self.next();
        let mut state = self.0.0.lock().unwrap();
        state.let_go += 1;
        let ended = state.let_go;
        drop(state);
        self.0.1.notify_all();
        super::until("a control has ended", || self.0.0.lock().unwrap().ended >= ended);
        call
    }

    /// Waits for the control that is on its way.
    pub fn next(&self) -> Call {
        super::until("a control comes", || {
            let state = self.0.0.lock().unwrap();
            state.calls.len() > state.ended
        });
        *self.0.0.lock().unwrap().calls.last().unwrap()
    }

    pub fn fail(&self, group: u32, how: Option<ControlFailure>) {
        let mut state = self.0.0.lock().unwrap();
        match how {
            Some(how) => drop(state.failures.insert(group, how)),
            None => drop(state.failures.remove(&group)),
        }
    }

    /// A driver that sets no slices, and of which that is known.
    pub fn without_slices() -> Self {
        let driver = Self::default();
        driver.0.0.lock().unwrap().unsliced = true;
        driver
    }

    /// From now on this group's slice stays as it is.
    pub fn refuse_slices(&self, group: u32) {
        self.0.0.lock().unwrap().unsliceable.insert(group);
    }

    pub fn calls(&self) -> Vec<Call> {
        self.0.0.lock().unwrap().calls.clone()
    }

    /// Calls since the last time.
    pub fn take_calls(&self) -> Vec<Call> {
        let mut state = self.0.0.lock().unwrap();
        assert!(!state.holds, "calls are counted while they are held");
        state.ended = 0;
        std::mem::take(&mut state.calls)
    }

    pub fn group(&self, group: u32) -> (bool, u64) {
        self.0.0.lock().unwrap().groups.get(&group).copied().unwrap_or((true, 2048))
    }

    /// Sets a group as its own process does.
    pub fn set_group(&self, group: u32, setting: (bool, u64)) {
        self.0.0.lock().unwrap().groups.insert(group, setting);
    }

    /// From now on a group runs although it is disabled: each reading of its count of switches is higher.
    pub fn run_while_disabled(&self, group: u32) {
        self.0.0.lock().unwrap().runs_while_disabled.insert(group, 0);
    }

    /// From now on a disabled group stands again.
    pub fn stand_while_disabled(&self, group: u32) {
        self.0.0.lock().unwrap().runs_while_disabled.remove(&group);
    }

    /// From now on a group has work: while it is enabled, each reading of its count of switches is higher.
    pub fn work(&self, group: u32) {
        self.0.0.lock().unwrap().working.insert(group, 0);
    }

    fn switches(&self, group: u32) -> u32 {
        let mut state = self.0.0.lock().unwrap();
        let state = &mut *state;
        let is_enabled = state.groups.get(&group).is_none_or(|(enabled, _)| *enabled);
        if let Some(count) = state.working.get_mut(&group) {
            *count += if is_enabled { 10 } else { 0 };
            return *count;
        }
        state.runs_while_disabled.get_mut(&group).map_or(0, |count| {
            *count += 10;
            *count
        })
    }

    fn call(&self, call: Call) -> Result<(), ControlFailure> {
        let (state, changed) = &*self.0;
        let mut state = state.lock().unwrap();
        state.calls.push(call);
        let ended = state.ended;
        while state.holds && state.let_go <= ended {
            state = changed.wait(state).unwrap();
        }
        state.ended += 1;
        if let Some(failure) = state.failures.get(&call.group()) {
            return Err(failure.clone());
        }
        let refused = |group| state.unsliced || state.unsliceable.contains(&group);
        if matches!(call, Call::Slice(group, _) if refused(group)) {
            return Err(ControlFailure::Failed(Cause::Refused, "no slices".into()));
        }
        let group = state.groups.entry(call.group()).or_insert((true, 2048));
        match call {
            Call::Slice(_, us) => group.1 = us,
            Call::Stop(_) => group.0 = false,
            Call::Start(_) => group.0 = true,
        }
        let running = state.groups.values().filter(|(enabled, us)| *enabled && *us < 1000).count();
        assert!(running <= 1, "{running} groups run with tiny slices");
        Ok(())
    }
}

impl ControlDriver for FakeDriver {
    fn open(&mut self, fd: OwnedFd) -> Result<Box<dyn ChannelControl>, (OwnedFd, String)> {
        match getsockname::<UnixAddr>(fd.as_raw_fd()) {
            Ok(_) => Ok(Box::new(Line { driver: self.clone(), _fd: fd })),
            Err(_) => Err((fd, "descriptor is no way to a driver".into())),
        }
    }

    fn sets_slices(&self) -> bool {
        !self.0.0.lock().unwrap().unsliced
    }
}

struct Line {
    driver: FakeDriver,
    _fd: OwnedFd,
}

impl ChannelControl for Line {
    fn make(&mut self, context: &ContextHandles, op: ControlOp) -> Result<(), ControlFailure> {
        let group = context.channel_group;
        let misses_channels = context.channels != self::context(group).channels;
        if misses_channels && !matches!(op, ControlOp::SetSlice(_)) {
            // The group's channels stay as they are.
            return Ok(());
        }
        self.driver.call(match op {
            ControlOp::SetSlice(us) => Call::Slice(group, us),
            ControlOp::Disable => Call::Stop(group),
            ControlOp::Enable => Call::Start(group),
        })
    }

    fn slice_us(&mut self, context: &ContextHandles) -> Option<u64> {
        Some(self.driver.group(context.channel_group).1)
    }

    fn switches(&mut self, context: &ContextHandles) -> Option<u32> {
        Some(self.driver.switches(context.channel_group))
    }
}

/// What a process sends as its control descriptor, and the end by which the test sees whether anybody still holds it.
pub struct Descriptor {
    pub sent: OwnedFd,
    other: UnixStream,
}

impl Descriptor {
    pub fn new() -> Self {
        let flags = SockFlag::SOCK_CLOEXEC;
        let (sent, other) = socketpair(AddressFamily::Unix, SockType::Stream, None, flags).unwrap();
        Self { sent, other: other.into() }
    }

    /// Waits until no process holds it.
    pub fn closes(self) {
        let Self { sent, mut other } = self;
        drop(sent);
        other.set_read_timeout(Some(super::hook::PATIENCE)).unwrap();
        assert_eq!(other.read(&mut [0]).unwrap(), 0);
    }

    /// Lets time go by until no process holds it.
    pub fn closes_in_time(self, world: &super::World) {
        let Self { sent, mut other } = self;
        drop(sent);
        other.set_nonblocking(true).unwrap();
        super::until("no process holds the descriptor", || {
            world.advance(super::MS);
            matches!(other.read(&mut [0]), Ok(0))
        });
    }
}

/// The context of one channel group of this number, on the first descriptor.
pub fn context(group: u32) -> ContextHandles {
    ContextHandles {
        descriptor: 0,
        client: 0xC1D0_0000 + group,
        subdevice: 0x5c00_0003,
        channel_group: group,
        channels: vec![0x5c00_0016, 0x5c00_0017],
    }
}
