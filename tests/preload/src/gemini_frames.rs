//! Gemini's frames, packed by hand, independent of the codec under test.
//!
//! A request is 80 bytes: `u64` name length, name, NUL, `i32` id, `u32` type, payload; an answer is 40 bytes and begins
//! with the id. All little-endian, unaligned, zero-padded.

/// REQ_QUOTA
pub const QUOTA: u32 = 0;
/// REQ_MEM_LIMIT
pub const MEM_LIMIT: u32 = 1;
/// REQ_MEM_UPDATE
pub const MEM_UPDATE: u32 = 2;

/// A request of any type with any payload.
///
/// # Panics
/// When it does not fit into 80 bytes.
pub fn request(name: &str, id: i32, kind: u32, payload: &[u8]) -> [u8; 80] {
    let mut bytes = Vec::with_capacity(80);
    bytes.extend((name.len() as u64).to_le_bytes());
    bytes.extend(name.as_bytes());
    bytes.push(0);
    bytes.extend(id.to_le_bytes());
    bytes.extend(kind.to_le_bytes());
    bytes.extend(payload);
    assert!(bytes.len() <= 80, "a request of {} bytes", bytes.len());
    bytes.resize(80, 0);
    bytes.try_into().unwrap_or([0; 80])
}

/// REQ_QUOTA, times in milliseconds.
pub fn quota_request(name: &str, id: i32, overuse_ms: f64, burst_ms: f64) -> [u8; 80] {
    let payload: Vec<u8> = [overuse_ms, burst_ms].iter().flat_map(|ms| ms.to_le_bytes()).collect();
    request(name, id, QUOTA, &payload)
}

/// REQ_MEM_UPDATE.
pub fn memory_request(name: &str, id: i32, bytes: u64, allocate: bool) -> [u8; 80] {
    let mut payload = bytes.to_le_bytes().to_vec();
    payload.extend(i32::from(allocate).to_le_bytes());
    request(name, id, MEM_UPDATE, &payload)
}

/// A request as a Gemini manager reads it.
#[derive(Debug, Clone, PartialEq)]
pub struct Received {
    /// The name the client gave.
    pub name: String,
    /// Repeated in the answer.
    pub id: i32,
    /// One of [`QUOTA`], [`MEM_LIMIT`], [`MEM_UPDATE`], or a type that a Gemini manager does not know.
    pub kind: u32,
    /// The bytes after the type.
    pub payload: Vec<u8>,
}

/// Decodes a request; `None` when its name does not fit.
pub fn received(frame: &[u8; 80]) -> Option<Received> {
    let word = |at: usize| frame.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
    let length = usize::try_from(u64::from_le_bytes(frame[..8].try_into().ok()?)).ok()?;
    let name = frame.get(8..8_usize.checked_add(length)?)?;
    Some(Received {
        name: String::from_utf8_lossy(name).into_owned(),
        id: i32::from_le_bytes(word(9 + length)?),
        kind: u32::from_le_bytes(word(13 + length)?),
        payload: frame.get(17 + length..)?.to_vec(),
    })
}

/// An answer: the id and its payload.
pub fn answer(id: i32, payload: &[u8]) -> [u8; 40] {
    let mut bytes = [0; 40];
    bytes[..4].copy_from_slice(&id.to_le_bytes());
    bytes[4..4 + payload.len()].copy_from_slice(payload);
    bytes
}

/// The `f64` at `at`, as in an answer's quota (4) or a request's payload (0, 8).
///
/// # Panics
/// When `bytes` is shorter than that.
pub fn f64_at(bytes: &[u8], at: usize) -> f64 {
    f64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or([0; 8]))
}

/// The `u64` at `at`.
///
/// # Panics
/// When `bytes` is shorter than that.
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or([0; 8]))
}

/// The `i32` at `at`.
///
/// # Panics
/// When `bytes` is shorter than that.
pub fn i32_at(bytes: &[u8], at: usize) -> i32 {
    i32::from_le_bytes(bytes[at..at + 4].try_into().unwrap_or([0; 4]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors were recorded from Gemini itself (`docs/reference/wire.md`, "Golden vectors").
    #[test]
    fn requests_are_packed_as_gemini_packs_them() {
        let hex = |text: &str| -> Vec<u8> {
            let digits: String = text.split_whitespace().collect();
            (0..digits.len()).step_by(2).map(|i| u8::from_str_radix(&digits[i..i + 2], 16).unwrap()).collect()
        };
        let quota =
            hex("0700000000000000 636c69656e743100 0000000000000000 000000000000f83f 0000000000c07240");
        assert_eq!(quota_request("client1", 0, 1.5, 300.0)[..40], quota);
        let update =
            hex("0700000000000000 636c69656e743100 0200000002000000 0000004000000000 0100000000000000");
        assert_eq!(memory_request("client1", 2, 1 << 30, true)[..40], update);
        let answered = hex("07000000 0000000000c07240");
        assert_eq!(answer(7, &300.0_f64.to_le_bytes())[..12], answered);
        assert_eq!(
            received(&request("client1", 1, MEM_LIMIT, &[])).map(|r| (r.id, r.kind)),
            Some((1, MEM_LIMIT))
        );
    }
}
