//! Parameters of GET_GID_INFO: the UUID of a subdevice's GPU, as NVML spells it ("GPU-...").

use super::fields::{get32, put, put32};

/// Size of the parameters: index, flags and length, then the text.
pub const LEN: usize = 268;
const LENGTH_AT: usize = 8;
const TEXT_AT: usize = 12;

/// Encodes the query; flags of 0 request the text form.
pub fn query() -> [u8; LEN] {
    [0; LEN]
}

/// Decodes the answer; `None` if it is no text.
pub fn decode(params: &[u8]) -> Option<&str> {
    let len = usize::try_from(get32(params, LENGTH_AT)?).ok()?;
    let text = params.get(TEXT_AT..)?.get(..len)?;
    // The length may include the terminating zero.
    let text = text.split(|byte| *byte == 0).next()?;
    std::str::from_utf8(text).ok().filter(|text| !text.is_empty())
}

/// Encodes an answer, truncated to what fits.
pub fn encode(text: &str) -> [u8; LEN] {
    let mut params = query();
    let text = &text.as_bytes()[..text.len().min(LEN - TEXT_AT - 1)];
    put32(&mut params, LENGTH_AT, u32::try_from(text.len() + 1).unwrap_or(0));
    put(&mut params, TEXT_AT, text);
    params
}

#[cfg(test)]
mod tests;
