//! Rules for the entries of either notation.

use super::mistake::{Mistake, Place};
use super::quantity::parse_bytes;
use super::{ClientEntry, NAME_MAX, ParseOptions};
use crate::ledger::Class;
use crate::share::{Share, ShareError, WHOLE_PPM};
use std::collections::BTreeMap;

/// An entry as written. `None`: the field is missing, which the reader of the notation has reported or allowed.
#[derive(Clone, Debug)]
pub(super) struct RawEntry {
    pub(super) place: Place,
    pub(super) name: Option<String>,
    pub(super) request: Option<String>,
    pub(super) limit: Option<String>,
    pub(super) memory: Option<String>,
    pub(super) class: Option<String>,
}

const SHARE: &str = "a share of one GPU between 0 and 1, such as 0.3 or 30%";

/// Converts raw entries into clients and appends every mistake to `mistakes`.
pub(super) fn check(
    raw: Vec<RawEntry>,
    reading: ParseOptions,
    mistakes: &mut Vec<Mistake>,
) -> Vec<ClientEntry> {
    let mut seen: BTreeMap<String, Place> = BTreeMap::new();
    let mut clients = Vec::with_capacity(raw.len());
    let mut requests = Vec::new();
    for entry in raw {
        let before = mistakes.len();
        let place = entry.place.clone();
        let name = entry.name.clone().unwrap_or_default();
        check_name(&entry, &seen, mistakes);
        seen.entry(name.clone()).or_insert_with(|| place.clone());
        let request = entry.request.as_deref().and_then(|text| share(text, "request", &place, mistakes));
        let limit = entry.limit.as_deref().and_then(|text| share(text, "limit", &place, mistakes));
        if let (Some(request), Some(limit)) = (request, limit) {
            check_order(request, limit, &place, reading, mistakes);
        }
        requests.extend(request.map(|share| (name.clone(), share)));
        let memory = entry.memory.as_deref().and_then(|text| memory(text, &place, mistakes));
        let class = class(entry.class.as_deref(), &place, mistakes);
        if mistakes.len() == before
            && let (Some(request), Some(limit), Some(memory), Some(class)) = (request, limit, memory, class)
        {
            clients.push(ClientEntry { name, request, limit, memory, class });
        }
    }
    check_sum(&requests, mistakes);
    clients
}

fn field(place: &Place, name: &str) -> String {
    format!("{}.{name}", place.path)
}

fn check_name(entry: &RawEntry, seen: &BTreeMap<String, Place>, mistakes: &mut Vec<Mistake>) {
    let Some(name) = entry.name.as_deref() else { return };
    let mut wrong = |found: String, expected: &str| {
        mistakes.push(Mistake::new(entry.place.line, field(&entry.place, "name"), found, expected));
    };
    if name.is_empty() || name.len() > NAME_MAX {
        wrong(format!("{name:?} of {} bytes", name.len()), "a name of 1 to 63 bytes");
    }
    if !name.bytes().all(|byte| byte.is_ascii_graphic()) {
        wrong(format!("{name:?}"), "a name of graphic ASCII characters, without spaces");
    }
    if let Some(first) = seen.get(name) {
        let at = first.line.map_or_else(|| first.path.clone(), |line| format!("line {line}"));
        wrong(format!("{name:?} a second time (first at {at})"), "a name that no other client has");
    }
}

fn share(text: &str, name: &str, place: &Place, mistakes: &mut Vec<Mistake>) -> Option<Share> {
    let (number, divisor) = text.strip_suffix('%').map_or((text, 1.0), |percent| (percent, 100.0));
    let parsed = match number.trim().parse::<f64>() {
        Ok(value) => Share::from_fraction(value / divisor).map_err(|error| error.to_string()),
        Err(_) => Err(ShareError::NotANumber.to_string()),
    };
    let problem = match parsed {
        Ok(share) if name == "limit" && share == Share::ZERO => {
            "a client with limit 0 could never run".to_owned()
        }
        Ok(share) => return Some(share),
        Err(problem) => problem,
    };
    let expected = if name == "limit" { format!("{SHARE}, above 0") } else { SHARE.to_owned() };
    mistakes.push(Mistake::new(place.line, field(place, name), format!("{text:?} ({problem})"), &expected));
    None
}

fn check_order(
    request: Share,
    limit: Share,
    place: &Place,
    reading: ParseOptions,
    mistakes: &mut Vec<Mistake>,
) {
    if request <= limit {
        return;
    }
    let hint = if reading.limit_first {
        "a limit of at least the request (the file is read with --swapped: limit first; this line does not look swapped)"
    } else {
        "a limit of at least the request (KubeShare 2.0 writes the two in the other order; --swapped reads such files)"
    };
    let found = format!("request {request} above limit {limit}");
    mistakes.push(Mistake::new(place.line, field(place, "limit"), found, hint));
}

fn memory(text: &str, place: &Place, mistakes: &mut Vec<Mistake>) -> Option<u64> {
    let bytes = parse_bytes(text);
    if bytes.is_none() {
        let expected = "an amount of memory such as 10737418240, 8Gi or 500M, below 2^64 bytes";
        mistakes.push(Mistake::new(place.line, field(place, "memory"), format!("{text:?}"), expected));
    }
    bytes
}

fn class(text: Option<&str>, place: &Place, mistakes: &mut Vec<Mistake>) -> Option<Class> {
    match text {
        None | Some("best-effort") => Some(Class::BestEffort),
        Some("latency-critical") => Some(Class::LatencyCritical),
        Some(other) => {
            let expected = "best-effort or latency-critical";
            mistakes.push(Mistake::new(place.line, field(place, "class"), format!("{other:?}"), expected));
            None
        }
    }
}

fn check_sum(requests: &[(String, Share)], mistakes: &mut Vec<Mistake>) {
    let sum: u64 = requests.iter().map(|(_, share)| u64::from(share.ppm())).sum();
    if sum <= u64::from(WHOLE_PPM) {
        return;
    }
    let named: Vec<String> = requests
        .iter()
        .filter(|(_, share)| *share > Share::ZERO)
        .map(|(name, share)| format!("{name} {share}"))
        .collect();
    let total = format!("{}.{:06}", sum / u64::from(WHOLE_PPM), sum % u64::from(WHOLE_PPM));
    let found = format!("{} in sum ({})", total.trim_end_matches('0'), named.join(" + "));
    mistakes.push(Mistake::new(None, "requests", found, "requests that add up to at most one GPU"));
}
