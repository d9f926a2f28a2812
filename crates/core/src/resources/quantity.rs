//! Amounts of memory: plain bytes or a Kubernetes quantity, exact.

/// Suffixes and their factors, longer ones first.
const SUFFIXES: [(&str, u64); 12] = [
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
    ("Pi", 1 << 50),
    ("Ei", 1 << 60),
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("P", 1_000_000_000_000_000),
    ("E", 1_000_000_000_000_000_000),
];

/// Reads bytes from `10737418240`, `8Gi`, `1.5Gi` or `500M`; a fraction of a byte is rounded up, as Kubernetes does.
/// `None` for anything else, negative amounts and amounts of 2^64 bytes or more.
#[must_use]
pub fn parse_bytes(text: &str) -> Option<u64> {
    let (number, unit) = SUFFIXES
        .iter()
        .find_map(|(suffix, unit)| text.strip_suffix(suffix).map(|number| (number, *unit)))
        .unwrap_or((text, 1));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || fraction.len() > 18 {
        return None;
    }
    let scale = 10u128.pow(u32::try_from(fraction.len()).ok()?);
    let whole: u128 = whole.parse().ok()?;
    let number = whole.checked_mul(scale)?.checked_add(fraction.parse().ok()?)?;
    let bytes = number.checked_mul(u128::from(unit))?.div_ceil(scale);
    u64::try_from(bytes).ok()
}

#[cfg(test)]
mod tests;
