//! Parameters of allocations and controls.

use super::fields::{get, get32, get64, layout, put, put32, put64};

/// Parameters of SET_TIMESLICE and GET_TIMESLICE: microseconds.
pub mod timeslice {
    /// Decodes the parameters.
    pub fn decode(params: &[u8]) -> Option<u64> {
        params.try_into().ok().map(u64::from_le_bytes)
    }

    /// Encodes the parameters.
    pub fn encode(us: u64) -> [u8; 8] {
        us.to_le_bytes()
    }
}

/// Parameters of GET_INFO: the group's number.
pub mod group_id {
    /// Decodes the parameters.
    pub fn decode(params: &[u8]) -> Option<u32> {
        params.try_into().ok().map(u32::from_le_bytes)
    }
}

/// Parameters of GET_HANDLE_INFO: an object, the queried property, and the answer.
pub mod handle_info {
    use super::{get32, put32, put64};

    /// Size of the parameters.
    pub const LEN: usize = 16;
    /// Queries the parent; 0 for a client.
    pub const PARENT: u32 = 1;
    /// Queries the class.
    pub const CLASS: u32 = 2;

    /// Encodes the query.
    pub fn query(object: u32, what: u32) -> [u8; LEN] {
        let mut params = [0; LEN];
        put32(&mut params, 0, object);
        put32(&mut params, 4, what);
        params
    }

    /// Decodes object and queried property.
    pub fn decode_query(params: &[u8]) -> Option<(u32, u32)> {
        let params: &[u8; LEN] = params.try_into().ok()?;
        Some((get32(params, 0)?, get32(params, 4)?))
    }

    /// Decodes the answer: class and parent fit in 32 bits.
    pub fn decode(params: &[u8]) -> Option<u32> {
        let params: &[u8; LEN] = params.try_into().ok()?;
        get32(params, 8)
    }

    /// Encodes the query with its answer.
    pub fn encode(object: u32, what: u32, answer: u32) -> [u8; LEN] {
        let mut params = query(object, what);
        put64(&mut params, 8, u64::from(answer));
        params
    }
}

/// Parameters of PREEMPT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preempt {
    /// Return when the group is off the GPU instead of at once.
    pub wait: bool,
    /// Limit of the wait in microseconds, at most one second; `None`: the driver's own limit.
    pub timeout_us: Option<u32>,
}

impl Preempt {
    /// Decodes the parameters.
    pub fn decode(params: &[u8]) -> Option<Self> {
        let params: &[u8; 8] = params.try_into().ok()?;
        let timeout_us = (params[1] != 0).then(|| get32(params, 4)).flatten();
        Some(Self { wait: params[0] != 0, timeout_us })
    }

    /// Encodes the parameters.
    pub fn encode(&self) -> [u8; 8] {
        let mut params = [u8::from(self.wait), u8::from(self.timeout_us.is_some()), 0, 0, 0, 0, 0, 0];
        put32(&mut params, 4, self.timeout_us.unwrap_or(0));
        params
    }
}

/// Parameters of DISABLE_CHANNELS. The event pointer is always null, because the driver requires that from user space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DisableChannels {
    /// Disables the channels if true, otherwise enables them.
    pub disable: bool,
    /// Stops only scheduling: running work continues.
    pub only_scheduling: bool,
    /// (client, channel), at most [`Self::MAX`].
    pub channels: Vec<(u32, u32)>,
}

impl DisableChannels {
    /// Size of the parameters.
    pub const LEN: usize = 536;
    /// The most channels of one control.
    pub const MAX: usize = 64;
    const CLIENTS: usize = 24;
    const CHANNELS: usize = 280;

    /// Decodes the parameters; `None` also for too many channels, an event pointer, or the flag that drops work.
    pub fn decode(params: &[u8]) -> Option<Self> {
        let params: &[u8; Self::LEN] = params.try_into().ok()?;
        let count = usize::try_from(get32(params, 4)?).ok().filter(|count| *count <= Self::MAX)?;
        if get::<1>(params, 9)? != [0] || get64(params, 16)? != 0 {
            return None;
        }
        let channel =
            |at| Some((get32(params, Self::CLIENTS + 4 * at)?, get32(params, Self::CHANNELS + 4 * at)?));
        Some(Self {
            disable: params[0] != 0,
            only_scheduling: params[8] != 0,
            channels: (0..count).map(channel).collect::<Option<_>>()?,
        })
    }

    /// Encodes the parameters; channels beyond [`Self::MAX`] are left out.
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut params = [0; Self::LEN];
        let channels = self.channels.get(..Self::MAX).unwrap_or(&self.channels);
        put(&mut params, 0, &[u8::from(self.disable)]);
        put32(&mut params, 4, u32::try_from(channels.len()).unwrap_or(0));
        put(&mut params, 8, &[u8::from(self.only_scheduling)]);
        for (at, (client, channel)) in channels.iter().enumerate() {
            put32(&mut params, Self::CLIENTS + 4 * at, *client);
            put32(&mut params, Self::CHANNELS + 4 * at, *channel);
        }
        params
    }
}

/// Parameters of GET_CTXSW_STATS: counts of a group's context switches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CtxswStats {
    /// Saves of its state.
    pub saves: u32,
    /// Restores of its state.
    pub restores: u32,
    /// Saves that waited until the engine was idle.
    pub wfi: u32,
    /// Saves at the end of thread blocks.
    pub cta: u32,
    /// Saves between instructions.
    pub cilp: u32,
    /// Saves within graphics work.
    pub gfxp: u32,
}

impl CtxswStats {
    /// Size of the parameters.
    pub const LEN: usize = 32;

    /// Encodes the query for a group; `reset` sets the counts to 0.
    pub fn query(group: u32, reset: bool) -> [u8; Self::LEN] {
        let mut params = [0; Self::LEN];
        put32(&mut params, 0, group);
        put32(&mut params, 4, u32::from(reset));
        params
    }

    /// Decodes the answer.
    pub fn decode(params: &[u8]) -> Option<Self> {
        let params: &[u8; Self::LEN] = params.try_into().ok()?;
        Some(Self {
            saves: get32(params, 8)?,
            restores: get32(params, 12)?,
            wfi: get32(params, 16)?,
            cta: get32(params, 20)?,
            cilp: get32(params, 24)?,
            gfxp: get32(params, 28)?,
        })
    }

    /// Encodes the answer for `group`.
    pub fn encode(&self, group: u32) -> [u8; Self::LEN] {
        let mut params = Self::query(group, false);
        let words = [self.saves, self.restores, self.wfi, self.cta, self.cilp, self.gfxp];
        for (at, word) in words.into_iter().enumerate() {
            put32(&mut params, 8 + 4 * at, word);
        }
        params
    }
}

/// Parameters of a channel group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupParams {
    /// The engine of the runlist that it joins.
    pub engine: u32,
}

impl GroupParams {
    /// Size of the parameters in the compared driver branches.
    pub const LEN: usize = 20;
    const ENGINE: usize = 12;
    /// Size up to and including the engine. What follows differs between driver branches and is not needed.
    pub const READ: usize = Self::ENGINE + 4;

    /// Decodes the first [`Self::READ`] bytes or more.
    pub fn read(params: &[u8]) -> Option<Self> {
        get32(params, Self::ENGINE).map(|engine| Self { engine })
    }
}

// 0 elsewhere means the driver's default.
layout!(GroupParams, GroupParams::LEN, { engine: u32 = GroupParams::ENGINE });

/// Parameters of a channel, as far as they are used here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChannelParams {
    /// Entries of its ring buffer.
    pub entries: u32,
    /// The engine that it submits to.
    pub engine: u32,
}

impl ChannelParams {
    /// Size of the parameters.
    pub const LEN: usize = 368;
}

layout!(ChannelParams, ChannelParams::LEN, { entries: u32 = 16, engine: u32 = 128 });
