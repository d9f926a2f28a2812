//! Amounts of memory on the command line and in printed text.

/// Parses `64Mi`, `2Gi`, `500M`, `1G` or a plain number of bytes.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let factor: u64 = match text.get(digits.len()..).unwrap_or_default() {
        "" => 1,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "k" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        unit => return Err(format!("`{unit}` is not a unit of memory; use Ki, Mi, Gi, k, M or G")),
    };
    let number: u64 =
        digits.parse().map_err(|_| format!("`{text}` is not an amount of memory, such as 64Mi"))?;
    number.checked_mul(factor).ok_or_else(|| format!("`{text}` is more than 64 bits of bytes"))
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
