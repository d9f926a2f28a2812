//! Finds the end of a certificate: just enough of DER to reach `notAfter`.

use jiff::civil::DateTime;

const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;

/// Seconds since 1970 at which the certificate (DER) ends; `None` if it is none.
pub(super) fn not_after(certificate: &[u8]) -> Option<i64> {
    let (tag, certificate, _) = element(certificate)?;
    let (inner, body, _) = element(certificate)?;
    if (tag, inner) != (SEQUENCE, SEQUENCE) {
        return None;
    }
    let rest = match element(body)? {
        (VERSION, _, rest) => rest,
        _ => body,
    };
    let rest = skip(rest, INTEGER)?;
    let algorithm_then = skip(rest, SEQUENCE)?;
    let issuer_then = skip(algorithm_then, SEQUENCE)?;
    let (tag, validity, _) = element(issuer_then)?;
    if tag != SEQUENCE {
        return None;
    }
    let (_, _, after) = element(validity)?;
    let (tag, time, _) = element(after)?;
    seconds(tag, std::str::from_utf8(time).ok()?)
}

/// One element: its tag, its content, and the rest.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = bytes.split_first()?;
    let (first, mut rest) = rest.split_first()?;
    let mut length = usize::from(*first);
    if length >= 0x80 {
        let (digits, after) = rest.split_at_checked(length & 0x7f).filter(|(digits, _)| digits.len() <= 4)?;
        length = digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit));
        rest = after;
    }
    let (content, rest) = rest.split_at_checked(length)?;
    Some((*tag, content, rest))
}

/// The rest after an element of this tag.
fn skip(bytes: &[u8], tag: u8) -> Option<&[u8]> {
    element(bytes).filter(|(found, _, _)| *found == tag).map(|(_, _, rest)| rest)
}

/// `YYMMDDHHMMSSZ` (two digits of the year, 1950 to 2049) or `YYYYMMDDHHMMSSZ`.
fn seconds(tag: u8, text: &str) -> Option<i64> {
    let full = match tag {
        UTC_TIME => format!("{}{text}", if text.get(..2)? < "50" { "20" } else { "19" }),
        GENERALIZED_TIME => text.to_owned(),
        _ => return None,
    };
    let digits = full.strip_suffix('Z').filter(|digits| digits.len() == 14)?;
    let time = DateTime::strptime("%Y%m%d%H%M%S", digits).ok()?;
    Some(time.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp().as_second())
}
