//! Parameters of allocations.

use super::fields::{get32, put32};

/// Parameters of a channel group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupParams {
    /// The engine whose runlist it joins.
    pub engine: u32,
}

impl GroupParams {
    /// Bytes of the parameters.
    pub const LEN: usize = 20;

    /// Reads them.
    #[must_use]
    pub fn decode(params: &[u8]) -> Option<Self> {
        let params: &[u8; Self::LEN] = params.try_into().ok()?;
        get32(params, 12).map(|engine| Self { engine })
    }

    /// The parameters, everything else left to the driver.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut params = [0; Self::LEN];
        put32(&mut params, 12, self.engine);
        params
    }
}

/// Parameters of a channel, as far as we look at them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChannelParams {
    /// Entries of its ring.
    pub entries: u32,
    /// The engine that it works on.
    pub engine: u32,
}

impl ChannelParams {
    /// Bytes of the parameters.
    pub const LEN: usize = 368;

    /// Reads them.
    #[must_use]
    pub fn decode(params: &[u8]) -> Option<Self> {
        let params: &[u8; Self::LEN] = params.try_into().ok()?;
        Some(Self { entries: get32(params, 16)?, engine: get32(params, 128)? })
    }

    /// The parameters, everything else 0.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut params = [0; Self::LEN];
        put32(&mut params, 16, self.entries);
        put32(&mut params, 128, self.engine);
        params
    }
}
