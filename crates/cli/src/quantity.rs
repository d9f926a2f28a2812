//! Amounts of memory on the command line and in printed text.

use sluice_core::resources;

/// Parses an amount as the resource file has it: `64Mi`, `1.5Gi`, `500M` or a plain number of bytes.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    resources::parse_bytes(text).ok_or_else(|| {
        format!("`{text}` is not an amount of memory: expected bytes below 2^64, such as 64Mi, 2G or 1.5Gi")
    })
}

/// Formats an amount: `1.25 GiB`, `64 MiB`.
pub(crate) fn bytes(amount: u64) -> String {
    match amount {
        0..1024 => format!("{amount} B"),
        1024..1_048_576 => format!("{:.0} KiB", amount as f64 / 1024.0),
        1_048_576..1_073_741_824 => format!("{:.0} MiB", amount as f64 / 1_048_576.0),
        _ if amount.is_multiple_of(1 << 30) => format!("{} GiB", amount >> 30),
        _ => format!("{:.2} GiB", amount as f64 / 1_073_741_824.0),
    }
}

#[cfg(test)]
mod tests;
