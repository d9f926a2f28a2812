//! Amounts as text. Free amounts are rounded down and requested ones up, so that a shortage is always visible.

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

/// Parts per million of a GPU, or of several, as a decimal in thousandths: `0.300`.
pub fn format_share(ppm: u64) -> String {
    format!("{}.{:03}", ppm / 1_000_000, ppm % 1_000_000 / 1000)
}

/// Memory that is free, rounded down: `3.9 GiB`.
pub(crate) fn memory_free(bytes: u64) -> String {
    let unit = unit_of(bytes);
    tenths(u128::from(bytes) * 10 / u128::from(unit), unit)
}

/// Requested memory, rounded up: `4.0 GiB`.
pub(crate) fn memory_asked(bytes: u64) -> String {
    let unit = unit_of(bytes);
    tenths((u128::from(bytes) * 10).div_ceil(u128::from(unit)), unit)
}

fn unit_of(bytes: u64) -> u64 {
    if bytes == 0 || bytes >= GIB { GIB } else { MIB }
}

fn tenths(tenths: u128, unit: u64) -> String {
    let name = if unit == GIB { "GiB" } else { "MiB" };
    format!("{}.{} {name}", tenths / 10, tenths % 10)
}
