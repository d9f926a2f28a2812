//! Controls: driver calls on a channel group through its owner's descriptor.
//!
//! A control takes a fraction of a millisecond. During that time it locks the driver for all processes of the node (SET_TIMESLICE,
//! DISABLE_CHANNELS: on every GPU). So controls are made one at a time, when a state changes. NV_OK does not prove an effect;
//! [`Controls::ctxsw_stats`] and throughput do.

use std::io;
use std::os::fd::OwnedFd;

use thiserror::Error;

use crate::NvStatus;
use crate::abi::{
    Command, ControlBlock, CtxswStats, DisableChannels, POINTER, Preempt, Request, gid, group_id,
    handle_info, timeslice,
};
use crate::transport::{self, NotADriver, Transport, wire};

/// Why a control failed.
#[derive(Debug, Error)]
pub enum ControlError {
    /// The driver refused it.
    #[error("driver refused the control: {0}")]
    Refused(NvStatus),
    /// It was neither made nor refused in time; its effect is unknown.
    #[error("control got no answer in time")]
    Timeout,
    /// The system call or the socket failed before the driver.
    #[error("control did not reach the driver: {0}")]
    Io(#[source] io::Error),
}

impl ControlError {
    /// Whether the group, channel or client no longer exists.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Refused(status) if status.is_gone())
    }
}

impl From<io::Error> for ControlError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::Timeout,
            _ => Self::Io(error),
        }
    }
}

/// The controls through one control descriptor.
#[derive(Debug)]
pub struct Controls {
    transport: Box<dyn Transport + Send>,
}

impl Controls {
    /// Controls through any transport.
    pub fn new(transport: Box<dyn Transport + Send>) -> Self {
        Self { transport }
    }

    /// Controls through a descriptor that another process sent.
    /// Errors: as [`transport::open_transport`].
    pub fn from_descriptor(fd: OwnedFd, simulated: bool) -> Result<Self, NotADriver> {
        transport::open_transport(fd, simulated).map(Self::new)
    }

    /// Reads the handle of the newest client of a simulated driver.
    /// Errors: of the transport; a real driver has no such request.
    pub(crate) fn simulators_newest_client(&self) -> io::Result<u32> {
        let mut newest = [0; 4];
        self.transport.escape(wire::NEWEST_CLIENT, &mut [0; POINTER.end], &mut newest)?;
        Ok(u32::from_le_bytes(newest))
    }

    /// Sets a group's time slice in microseconds; the driver rounds it to one that the GPU supports. 0 is refused here.
    pub fn set_timeslice(&self, client: u32, group: u32, us: u64) -> Result<(), ControlError> {
        if us == 0 {
            return Err(ControlError::Refused(NvStatus::INVALID_ARGUMENT));
        }
        self.control(client, group, Command::SET_TIMESLICE, &mut timeslice::encode(us))
    }

    /// Reads the time slice that any process set last. It does not prove that the GPU applies it.
    pub fn timeslice(&self, client: u32, group: u32) -> Result<u64, ControlError> {
        let mut params = timeslice::encode(0);
        self.control(client, group, Command::GET_TIMESLICE, &mut params)?;
        timeslice::decode(&params).ok_or(MALFORMED)
    }

    /// Disables channels: takes them off the GPU until they are enabled. At most 64, all of one group.
    pub fn disable(&self, client: u32, subdevice: u32, channels: &[u32]) -> Result<(), ControlError> {
        self.switch(client, subdevice, channels, true)
    }

    /// Enables channels.
    pub fn enable(&self, client: u32, subdevice: u32, channels: &[u32]) -> Result<(), ControlError> {
        self.switch(client, subdevice, channels, false)
    }

    /// Preempts a group: takes it off the GPU until its next time slice.
    pub fn preempt(&self, client: u32, group: u32, preempt: Preempt) -> Result<(), ControlError> {
        self.control(client, group, Command::PREEMPT, &mut preempt.encode())
    }

    /// Reads the group's number on its GPU.
    pub fn group_id(&self, client: u32, group: u32) -> Result<u32, ControlError> {
        let mut params = [0; 4];
        self.control(client, group, Command::GET_INFO, &mut params)?;
        group_id::decode(&params).ok_or(MALFORMED)
    }

    /// Reads how often the GPU switched the group out, and in which way.
    pub fn ctxsw_stats(&self, client: u32, subdevice: u32, group: u32) -> Result<CtxswStats, ControlError> {
        let mut params = CtxswStats::query(group, false);
        self.control(client, subdevice, Command::GET_CTXSW_STATS, &mut params)?;
        CtxswStats::decode(&params).ok_or(MALFORMED)
    }

    /// Reads the UUID of the GPU that a subdevice belongs to, as NVML spells it.
    pub fn gpu_uuid(&self, client: u32, subdevice: u32) -> Result<String, ControlError> {
        let mut params = gid::query();
        self.control(client, subdevice, Command::GET_GID_INFO, &mut params)?;
        gid::decode(&params).map(str::to_owned).ok_or(MALFORMED)
    }

    /// Reads a property of an object; `None` if the client has no such object.
    /// Errors: `INVALID_CLIENT` if the client was not made over this descriptor's open file.
    pub(crate) fn handle_info(
        &self,
        client: u32,
        object: u32,
        what: u32,
    ) -> Result<Option<u32>, ControlError> {
        let mut params = handle_info::query(object, what);
        match self.control(client, client, Command::GET_HANDLE_INFO, &mut params) {
            Ok(()) => handle_info::decode(&params).map(Some).ok_or(MALFORMED),
            Err(ControlError::Refused(NvStatus::OBJECT_NOT_FOUND | NvStatus::INVALID_OBJECT_HANDLE)) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn switch(
        &self,
        client: u32,
        subdevice: u32,
        channels: &[u32],
        disable: bool,
    ) -> Result<(), ControlError> {
        if channels.is_empty() || channels.len() > DisableChannels::MAX {
            return Err(ControlError::Refused(NvStatus::INVALID_ARGUMENT));
        }
        let channels = channels.iter().map(|channel| (client, *channel)).collect();
        let params = DisableChannels { disable, only_scheduling: false, channels };
        self.control(client, subdevice, Command::DISABLE_CHANNELS, &mut params.encode())
    }

    fn control(
        &self,
        client: u32,
        object: u32,
        command: Command,
        params: &mut [u8],
    ) -> Result<(), ControlError> {
        let block = ControlBlock {
            client,
            object,
            command: command.number,
            params_len: command.params_len,
            ..ControlBlock::default()
        };
        let mut block = block.encode();
        self.transport.escape(Request::CONTROL.nr, &mut block, params)?;
        match ControlBlock::decode(&block).map(|block| NvStatus(block.status)) {
            Some(NvStatus::OK) => Ok(()),
            Some(NvStatus::TIMEOUT) => Err(ControlError::Timeout),
            Some(status) => Err(ControlError::Refused(status)),
            None => Err(MALFORMED),
        }
    }
}

/// Unreachable: the parameter arrays have the size that their decoders expect.
const MALFORMED: ControlError = ControlError::Refused(NvStatus::INVALID_ARGUMENT);
