//! Numbers of requests and of controls.

/// The type byte of all of the driver's requests. Frame buffers use it too, so it does not identify the driver.
const TYPE: u8 = b'F';
/// The direction bits "read and write"; the driver ignores them.
const READ_WRITE: u32 = 3;

/// The bytes of a block of allocations and controls that hold the address of the parameters.
pub const POINTER: std::ops::Range<usize> = 16..24;
/// The longest block of the requests named here.
pub const MAX_BLOCK_LEN: usize = 48;

/// A decoded request number: the function, and the size of its block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Request {
    /// The function.
    pub nr: u8,
    /// Size of the block.
    pub len: u16,
}

impl Request {
    /// RM_FREE with its block (NVOS00).
    pub const FREE: Self = Self { nr: 0x29, len: 16 };
    /// RM_CONTROL with its block (NVOS54).
    pub const CONTROL: Self = Self { nr: 0x2a, len: 32 };
    /// RM_ALLOC with the short block (NVOS21).
    pub const ALLOC: Self = Self { nr: 0x2b, len: 32 };
    /// RM_ALLOC with the long block (NVOS64), which has rights and flags.
    pub const ALLOC_WITH_RIGHTS: Self = Self { nr: 0x2b, len: 48 };
    /// RM_DUP_OBJECT with its block (NVOS55).
    pub const DUP_OBJECT: Self = Self { nr: 0x34, len: 28 };
    /// RM_SHARE with its block (NVOS57).
    pub const SHARE: Self = Self { nr: 0x35, len: 24 };
    /// An indirect request: function, size and address of the block of another request.
    pub const XFER: Self = Self { nr: 211, len: 16 };

    /// Decodes a request number; `None` if its type byte is not the driver's. The kernel uses only the low 32 bits.
    #[inline]
    pub const fn of(number: u64) -> Option<Self> {
        let [nr, kind, size, size_and_direction, ..] = number.to_le_bytes();
        if kind != TYPE {
            return None;
        }
        Some(Self { nr, len: u16::from_le_bytes([size, size_and_direction & 0x3f]) })
    }

    /// Encodes the request number.
    pub const fn number(self) -> u32 {
        READ_WRITE << 30 | (self.len as u32 & 0x3fff) << 16 | (TYPE as u32) << 8 | self.nr as u32
    }

    /// Whether it is one of the requests named here.
    pub const fn is_known(self) -> bool {
        matches!(
            self,
            Self::FREE
                | Self::CONTROL
                | Self::ALLOC
                | Self::ALLOC_WITH_RIGHTS
                | Self::DUP_OBJECT
                | Self::SHARE
                | Self::XFER
        )
    }
}

/// A control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Command {
    /// Its number.
    pub number: u32,
    /// Size of its parameters.
    pub params_len: u32,
}

macro_rules! commands {
    ($($(#[$doc:meta])+ $name:ident = $number:literal, $len:literal;)+) => {
        impl Command {
            $($(#[$doc])+ pub const $name: Self = Self { number: $number, params_len: $len };)+

            /// All known controls.
            pub const ALL: [Self; 15] = [$(Self::$name),+];
        }
    };
}

commands! {
    /// Schedules a channel group or not (NV_OK without effect on running work). 2 bytes before driver 575.
    GPFIFO_SCHEDULE = 0xa06c_0101, 3;
    /// Sets a group's time slice.
    SET_TIMESLICE = 0xa06c_0103, 8;
    /// Reads the time slice that was set last.
    GET_TIMESLICE = 0xa06c_0104, 8;
    /// Takes a group off the GPU until its next time slice.
    PREEMPT = 0xa06c_0105, 8;
    /// Reads a group's number.
    GET_INFO = 0xa06c_0106, 4;
    /// Sets how often a group is in the runlist.
    SET_INTERLEAVE_LEVEL = 0xa06c_0107, 4;
    /// Puts a group first in the runlist.
    MAKE_REALTIME = 0xa06c_0110, 1;
    /// Ends the running time slice; addressed to a channel.
    RESTART_RUNLIST = 0xa06f_0111, 2;
    /// Disables or enables channels; addressed to a subdevice.
    DISABLE_CHANNELS = 0x2080_110b, 536;
    /// Sets the runlist's policy; addressed to a subdevice.
    RUNLIST_SET_SCHED_POLICY = 0x2080_1115, 8;
    /// Sets where kernels may be interrupted; addressed to a subdevice.
    SET_CTXSW_PREEMPTION_MODE = 0x2080_1210, 32;
    /// Reads how often a group was switched out; addressed to a subdevice.
    GET_CTXSW_STATS = 0x2080_1215, 32;
    /// Reads where kernels are interrupted; addressed to a subdevice.
    GET_CTXSW_MODES = 0x2080_1235, 24;
    /// Reads class or parent of an object; addressed to a client.
    GET_HANDLE_INFO = 0xd02, 16;
    /// Reads the UUID of the GPU; addressed to a subdevice.
    GET_GID_INFO = 0x2080_014a, 268;
}

impl Command {
    /// The control with this number.
    pub fn of(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|command| command.number == number)
    }
}
