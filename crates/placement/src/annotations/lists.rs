//! Names and lists of names.

/// At most this many names in a list.
const MAX_NAMES: usize = 64;

/// A comma-separated list: at least one name, spaces around names dropped, each `good`, none twice.
pub(super) fn parse_list(text: &str, good: impl Fn(&str) -> bool) -> Option<Vec<String>> {
    let mut names: Vec<String> = Vec::new();
    for name in text.split(',').map(str::trim) {
        if names.len() == MAX_NAMES || !good(name) || names.iter().any(|seen| seen == name) {
            return None;
        }
        names.push(name.to_owned());
    }
    Some(names)
}

/// A DNS label, as container names are.
pub(super) fn is_label(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    name.len() <= 63
        && name.bytes().all(|byte| inner(byte) || byte == b'-')
        && name.bytes().next().is_some_and(inner)
        && name.bytes().last().is_some_and(inner)
}

/// What NVML calls a GPU: printable, without commas, not empty.
pub(super) fn is_model(name: &str) -> bool {
    !name.is_empty() && name.len() <= 96 && name.chars().all(|c| c.is_ascii_graphic() || c == ' ')
}

/// `GPU-…` or `MIG-…`.
pub(super) fn is_uuid(name: &str) -> bool {
    let rest = name.strip_prefix("GPU-").or_else(|| name.strip_prefix("MIG-"));
    rest.is_some_and(|rest| {
        !rest.is_empty() && rest.len() <= 96 && rest.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    })
}

/// The known key nearest to an unknown one, if any is near enough to be meant.
pub(super) fn nearest<'a>(unknown: &str, known: &[&'a str]) -> Option<&'a str> {
    let unknown: Vec<char> = unknown.chars().take(64).collect();
    let (distance, key) = known.iter().map(|key| (distance(&unknown, key), *key)).min()?;
    (distance <= 3).then_some(key)
}

/// Insertions, deletions and replacements from one to the other.
fn distance(from: &[char], to: &str) -> usize {
    let mut row: Vec<usize> = (0..=from.len()).collect();
    for (line, wanted) in to.chars().enumerate() {
        let mut diagonal = line;
        let mut left = line + 1;
        for (cell, found) in row.iter_mut().skip(1).zip(from) {
            let above = *cell;
            let here = (diagonal + usize::from(*found != wanted)).min(above + 1).min(left + 1);
            diagonal = above;
            left = here;
            *cell = here;
        }
        if let Some(first) = row.first_mut() {
            *first = line + 1;
        }
    }
    row.last().copied().unwrap_or(usize::MAX)
}
