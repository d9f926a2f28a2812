//! Parameters of allocations.

use super::fields::{get32, put32};

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

    /// Decodes parameters of exactly [`Self::LEN`] bytes.
    #[must_use]
    pub fn decode(params: &[u8]) -> Option<Self> {
        let params: &[u8; Self::LEN] = params.try_into().ok()?;
        Self::read(params)
    }

    /// Decodes the first [`Self::READ`] bytes or more.
    #[must_use]
    pub fn read(params: &[u8]) -> Option<Self> {
        get32(params, Self::ENGINE).map(|engine| Self { engine })
    }

    /// Encodes the parameters; 0 elsewhere means the driver's default.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut params = [0; Self::LEN];
        put32(&mut params, Self::ENGINE, self.engine);
        params
    }
}

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

    /// Decodes the parameters.
    #[must_use]
    pub fn decode(params: &[u8]) -> Option<Self> {
        let params: &[u8; Self::LEN] = params.try_into().ok()?;
        Some(Self { entries: get32(params, 16)?, engine: get32(params, 128)? })
    }

    /// Encodes the parameters, 0 elsewhere.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut params = [0; Self::LEN];
        put32(&mut params, 16, self.entries);
        put32(&mut params, 128, self.engine);
        params
    }
}
