//! Durations as Go writes them.

/// Nanoseconds per unit; longer names first.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Nanoseconds of `5ms`, `1.5s` or `1h2m3s`; parts of a nanosecond are dropped. `None` for anything else, for negative
/// durations and for those of 2^64 ns or more.
#[must_use]
pub fn parse_duration(text: &str) -> Option<u64> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Some(0);
    }
    let mut total = 0u64;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(end);
        let (name, unit) = UNITS.iter().find(|(name, _)| tail.starts_with(name))?;
        // "m" is also how "ms" begins; the table has "ms" first.
        rest = tail.strip_prefix(name)?;
        total = total.checked_add(part(number, *unit)?)?;
    }
    Some(total)
}

/// One number with its unit.
fn part(number: &str, unit: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut total = whole.checked_mul(unit)?;
    // Digits behind the thirteenth are below a nanosecond even of an hour, but could carry: they are dropped as Go does.
    let fraction = fraction.get(..fraction.len().min(18))?;
    if !fraction.is_empty() {
        let scale = 10u128.pow(u32::try_from(fraction.len()).ok()?);
        let digits: u128 = fraction.parse().ok()?;
        total = total.checked_add(u64::try_from(digits * u128::from(unit) / scale).ok()?)?;
    }
    Some(total)
}
