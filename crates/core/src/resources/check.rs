//! Rules for the entries of either notation.

use super::{ClientEntry, Mistake, NAME_MAX, ParseOptions, Place};
use crate::ledger::Class;
use crate::share::{Share, ShareError, WHOLE_PPM};
use sluice_units::{parse_duration, parse_quantity};
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
    pub(super) slo: Option<String>,
    pub(super) overcommit: bool,
    pub(super) suspended: bool,
}

const SHARE: &str = "a share of one GPU between 0 and 1, such as 0.3 or 30%";
const CLASSES: &str = "latency-critical, high, normal or best-effort";
const SLO: &str = "a duration above 0, such as 5ms or 1.5s";
const SLO_CLASS: &str = "no slo, or class: latency-critical";
const OVERCOMMIT_CLASS: &str =
    "no overcommit, or another class: the memory of a latency-critical client never leaves the GPU";
const MEMORY: &str = "an amount of memory such as 10737418240, 8Gi or 500M, below 2^64 bytes";

/// Converts raw entries into clients and appends every mistake to `mistakes`.
pub(super) fn check(
    raw: Vec<RawEntry>,
    reading: ParseOptions,
    mistakes: &mut Vec<Mistake>,
) -> Vec<ClientEntry> {
    let mut seen: BTreeMap<String, Place> = BTreeMap::new();
    let mut clients = Vec::with_capacity(raw.len());
    let mut requests = Vec::new();
    for RawEntry { place, name, request, limit, memory, class, slo, overcommit, suspended } in raw {
        let before = mistakes.len();
        if let Some(name) = &name {
            check_name(name, &place, &seen, mistakes);
        }
        let name = name.unwrap_or_default();
        seen.entry(name.clone()).or_insert_with(|| place.clone());
        let request = read(request, mistakes, |text| share(text, "request", &place));
        let limit = read(limit, mistakes, |text| share(text, "limit", &place));
        if let (Some(request), Some(limit)) = (request, limit)
            && request > limit
        {
            let found = format!("request {request} above limit {limit}");
            mistakes.push(place.mistake("limit", found, order_hint(reading)));
        }
        requests.extend(request.map(|share| (name.clone(), share)));
        let memory = read(memory, mistakes, |text| {
            parse_bytes(text).ok_or_else(|| place.mistake("memory", format!("{text:?}"), MEMORY))
        });
        let class = class.unwrap_or_else(|| Class::default().name().to_owned());
        let class = read(Some(class), mistakes, |text| {
            let known = Class::ALL.into_iter().find(|class| class.name() == text);
            known.ok_or_else(|| place.mistake("class", format!("{text:?}"), CLASSES))
        });
        let slo_ns = read(slo, mistakes, |text| {
            let duration = parse_duration(text).filter(|ns| *ns > 0);
            duration.ok_or_else(|| place.mistake("slo", format!("{text:?}"), SLO))
        });
        if slo_ns.is_some() && class.is_some_and(|class| !class.is_latency_critical()) {
            mistakes.push(place.mistake("slo", "an slo of another class", SLO_CLASS));
        }
        if overcommit && class.is_some_and(|class| class.is_latency_critical()) {
            mistakes.push(place.mistake(
                "overcommit",
                "true for a latency-critical client",
                OVERCOMMIT_CLASS,
            ));
        }
        if mistakes.len() == before
            && let (Some(request), Some(limit), Some(memory), Some(class)) = (request, limit, memory, class)
        {
            let slo_ns = slo_ns.unwrap_or(0);
            clients.push(ClientEntry { name, request, limit, memory, class, slo_ns, overcommit, suspended });
        }
    }
    check_sum(&requests, mistakes);
    clients
}

/// Bytes of a Kubernetes quantity, for texts that a person writes: `64m`, a part of a byte, is refused, because 64 MiB is meant.
#[must_use]
pub fn parse_bytes(text: &str) -> Option<u64> {
    if text.ends_with(['n', 'u', 'm']) { None } else { parse_quantity(text) }
}

/// Reads a field that is there, or appends the mistake in it.
fn read<T>(
    text: Option<String>,
    mistakes: &mut Vec<Mistake>,
    parse: impl FnOnce(&str) -> Result<T, Mistake>,
) -> Option<T> {
    parse(&text?).map_err(|mistake| mistakes.push(mistake)).ok()
}

fn check_name(name: &str, place: &Place, seen: &BTreeMap<String, Place>, mistakes: &mut Vec<Mistake>) {
    let mut wrong = |found: String, expected: &str| mistakes.push(place.mistake("name", found, expected));
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

fn share(text: &str, field: &str, place: &Place) -> Result<Share, Mistake> {
    let (number, divisor) = text.strip_suffix('%').map_or((text, 1.0), |percent| (percent, 100.0));
    let value = number.trim().parse::<f64>().map_err(|_| ShareError::NotANumber);
    let problem = match value.and_then(|value| Share::from_fraction(value / divisor)) {
        Ok(share) if field == "limit" && share == Share::ZERO => {
            "a client with limit 0 could never run".to_owned()
        }
        Ok(share) => return Ok(share),
        Err(problem) => problem.to_string(),
    };
    let expected = if field == "limit" { format!("{SHARE}, above 0") } else { SHARE.to_owned() };
    Err(place.mistake(field, format!("{text:?} ({problem})"), &expected))
}

fn order_hint(reading: ParseOptions) -> &'static str {
    if reading.limit_first {
        "a limit of at least the request (the file is read with --swapped: limit first; this line does not look swapped)"
    } else {
        "a limit of at least the request (KubeShare 2.0 writes the two in the other order; --swapped reads such files)"
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
