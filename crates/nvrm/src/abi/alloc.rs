//! Parameters of allocations.

use super::fields::{get32, put32};

/// Parameters of a channel group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupParams {
    /// The engine whose runlist it joins.
    pub engine: u32,
}

impl GroupParams {
    /// Bytes of the parameters in the branches that were compared.
    pub const LEN: usize = 20;
    const ENGINE: usize = 12;
    /// Bytes up to the engine, and with it: what lies behind them is another branch's own, longer or shorter, and nothing
    /// that is needed.
    pub const READ: usize = Self::ENGINE + 4;

    /// Reads them, as the driver takes them.
    #[must_use]
    pub fn decode(params: &[u8]) -> Option<Self> {
        let params: &[u8; Self::LEN] = params.try_into().ok()?;
        Self::read(params)
    }

    /// Reads what there is of them, at least [`Self::READ`] bytes.
    #[must_use]
    pub fn read(params: &[u8]) -> Option<Self> {
        get32(params, Self::ENGINE).map(|engine| Self { engine })
    }

    /// The parameters, everything else left to the driver.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut params = [0; Self::LEN];
        put32(&mut params, Self::ENGINE, self.engine);
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
