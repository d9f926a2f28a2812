//! Controls: their numbers, and the parameter sizes that the driver requires.

/// A control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Command {
    /// Its number.
    pub number: u32,
    /// Size of its parameters.
    pub params_len: u32,
}

impl Command {
    /// Schedules a channel group or not (NV_OK without effect on running work). 2 bytes before driver 575.
    pub const GPFIFO_SCHEDULE: Self = Self::new(0xa06c_0101, 3);
    /// Sets a group's time slice.
    pub const SET_TIMESLICE: Self = Self::new(0xa06c_0103, 8);
    /// Reads the time slice that was set last.
    pub const GET_TIMESLICE: Self = Self::new(0xa06c_0104, 8);
    /// Takes a group off the GPU until its next time slice.
    pub const PREEMPT: Self = Self::new(0xa06c_0105, 8);
    /// Reads a group's number.
    pub const GET_INFO: Self = Self::new(0xa06c_0106, 4);
    /// Sets how often a group is in the runlist.
    pub const SET_INTERLEAVE_LEVEL: Self = Self::new(0xa06c_0107, 4);
    /// Puts a group first in the runlist.
    pub const MAKE_REALTIME: Self = Self::new(0xa06c_0110, 1);
    /// Ends the running time slice; addressed to a channel.
    pub const RESTART_RUNLIST: Self = Self::new(0xa06f_0111, 2);
    /// Disables or enables channels; addressed to a subdevice.
    pub const DISABLE_CHANNELS: Self = Self::new(0x2080_110b, 536);
    /// Sets the runlist's policy; addressed to a subdevice.
    pub const RUNLIST_SET_SCHED_POLICY: Self = Self::new(0x2080_1115, 8);
    /// Sets where kernels may be interrupted; addressed to a subdevice.
    pub const SET_CTXSW_PREEMPTION_MODE: Self = Self::new(0x2080_1210, 32);
    /// Reads how often a group was switched out; addressed to a subdevice.
    pub const GET_CTXSW_STATS: Self = Self::new(0x2080_1215, 32);
    /// Reads where kernels are interrupted; addressed to a subdevice.
    pub const GET_CTXSW_MODES: Self = Self::new(0x2080_1235, 24);
    /// Reads the UUID of the GPU; addressed to a subdevice.
    pub const GET_GID_INFO: Self = Self::new(0x2080_014a, 268);
    /// Reads class or parent of an object; addressed to a client.
    pub const GET_HANDLE_INFO: Self = Self::new(0xd02, 16);

    /// All known controls.
    pub const ALL: [Self; 15] = [
        Self::GPFIFO_SCHEDULE,
        Self::SET_TIMESLICE,
        Self::GET_TIMESLICE,
        Self::PREEMPT,
        Self::GET_INFO,
        Self::SET_INTERLEAVE_LEVEL,
        Self::MAKE_REALTIME,
        Self::RESTART_RUNLIST,
        Self::DISABLE_CHANNELS,
        Self::RUNLIST_SET_SCHED_POLICY,
        Self::SET_CTXSW_PREEMPTION_MODE,
        Self::GET_CTXSW_STATS,
        Self::GET_CTXSW_MODES,
        Self::GET_HANDLE_INFO,
        Self::GET_GID_INFO,
    ];

    const fn new(number: u32, params_len: u32) -> Self {
        Self { number, params_len }
    }

    /// The control with this number.
    #[must_use]
    pub fn of(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|command| command.number == number)
    }
}
