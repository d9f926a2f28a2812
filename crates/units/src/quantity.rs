//! Kubernetes quantities as whole bytes, exact.

/// Factor of a suffix: a power of two and a power of ten.
fn unit(suffix: &str) -> Option<(u32, i64)> {
    Some(match suffix {
        "" => (0, 0),
        "n" => (0, -9),
        "u" => (0, -6),
        "m" => (0, -3),
        "k" => (0, 3),
        "M" => (0, 6),
        "G" => (0, 9),
        "T" => (0, 12),
        "P" => (0, 15),
        "E" => (0, 18),
        "Ki" => (10, 0),
        "Mi" => (20, 0),
        "Gi" => (30, 0),
        "Ti" => (40, 0),
        "Pi" => (50, 0),
        "Ei" => (60, 0),
        exponent => (0, parse_exponent(exponent)?),
    })
}

/// `e3`, `E+3` or `e-3`.
fn parse_exponent(text: &str) -> Option<i64> {
    let digits = text.strip_prefix(['e', 'E'])?;
    let (negative, digits) = match digits.as_bytes().first()? {
        b'-' => (true, digits.get(1..)?),
        b'+' => (false, digits.get(1..)?),
        _ => (false, digits),
    };
    if digits.is_empty() || digits.len() > 6 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let exponent: i64 = digits.parse().ok()?;
    Some(if negative { -exponent } else { exponent })
}

/// Bytes of a Kubernetes quantity (`8Gi`, `1.5G`, `500M`, `1e9`, `0.5Ki`, `1024`); a part of a byte is rounded up, as
/// Kubernetes does. `None` if the text is no quantity, is negative, has more than 38 digits, or is 2^64 bytes or more.
#[must_use]
pub fn parse_quantity(text: &str) -> Option<u64> {
    parse_scaled(text, 0)
}

/// Thousandths of a Kubernetes quantity, such as the `500m` of a processor. Otherwise as [`parse_quantity`].
#[must_use]
pub fn parse_thousandths(text: &str) -> Option<u64> {
    parse_scaled(text, 3)
}

/// A quantity times a power of ten, rounded up.
fn parse_scaled(text: &str, power: i64) -> Option<u64> {
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let (twos, tens) = unit(suffix)?;
    let (digits, scale) = significant(whole, fraction);
    if digits.is_empty() {
        return Some(0);
    }
    if negative {
        return None;
    }
    bytes(&digits, tens - scale + power, twos)
}

/// The digits without zeros at either end, and the number of them behind the point (negative: zeros to add).
fn significant(whole: &str, fraction: &str) -> (String, i64) {
    let all = format!("{whole}{fraction}");
    let kept = all.trim_end_matches('0');
    let behind = i64::try_from(fraction.len()).unwrap_or(i64::MAX);
    let dropped = i64::try_from(all.len() - kept.len()).unwrap_or(i64::MAX);
    (kept.trim_start_matches('0').to_owned(), behind - dropped)
}

/// `digits × 10^tens × 2^twos`, rounded up.
fn bytes(digits: &str, tens: i64, twos: u32) -> Option<u64> {
    let count = i64::try_from(digits.len()).unwrap_or(i64::MAX);
    // 10^20 is more than 2^64 with any suffix.
    if count.saturating_add(tens) > 20 {
        return None;
    }
    // Less than 10^-20 × 2^60 is above zero and less than one byte: rounded up to one.
    if count.saturating_add(tens) < -20 {
        return Some(1);
    }
    let number: u128 = digits.parse().ok()?;
    let power = |tens: i64| u32::try_from(tens).ok().and_then(|tens| 10u128.checked_pow(tens));
    let (mut whole, mut rest, unit) = if tens >= 0 {
        // Below 10^20 by the first check.
        (number * power(tens)?, 0, 1)
    } else {
        let unit = power(-tens)?;
        (number / unit, number % unit, unit)
    };
    // Doubling keeps it exact: `whole` stays below 10^20 × 2^60 < 2^127, `rest` below `unit` ≤ 10^38 < 2^127.
    for _ in 0..twos {
        rest *= 2;
        whole = whole * 2 + u128::from(rest >= unit);
        rest %= unit;
    }
    u64::try_from(whole + u128::from(rest > 0)).ok()
}
