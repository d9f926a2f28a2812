//! The scenario file: a resource file in YAML with the further keys `seed`, `duration`, `gpu`, `policies`, `stalls` and
//! `workloads`. As in the resource file, every mistake is reported at once.

use super::fields::{Fields, Part};
use super::{Arrivals, Distribution, Gpu, HostTimes, Scenario, Service, Stall, Workload};
use crate::policy_name::PolicyName;
use serde_yaml::Value;
use sluice_core::Share;
use sluice_core::resources::{ClientEntry, Mistakes, parse_beside, shown};
use sluice_core::share::parse_duration;
use std::collections::{BTreeMap, BTreeSet};
use strum::VariantArray;

/// The most GPUs of a scenario.
const MOST_GPUS: usize = 64;
const GPU: &str = "all, or the number of a GPU from 0 to 63";

const KEYS: [&str; 6] = ["seed", "duration", "gpu", "policies", "stalls", "workloads"];

/// Reads the file of a trace: its text, or why it cannot be read.
type ReadFile<'a> = &'a dyn Fn(&str) -> Result<String, String>;

/// Reads a scenario. `file` reads the file of a trace.
///
/// # Errors
/// Every mistake of the file, with line and key.
pub fn parse(text: &str, file: &dyn Fn(&str) -> Result<String, String>) -> Result<Scenario, Mistakes> {
    let (clients, document, mut mistakes) = parse_beside(text, &KEYS);
    let mut top = Fields::of(Value::Mapping(document), Part::whole(text));
    top.value("clients");
    let seed = top.parsed("seed", Some("1"), "a whole number", |text| text.parse().ok());
    let span_ns = top.span("duration", Some("60s"));
    let gpu = top.section("gpu", gpu).unwrap_or_else(|| gpu(&mut Fields::empty()));
    let policies = policies(&mut top);
    let mut stalls = list(&mut top, "stalls", stall);
    stalls.sort_by_key(|stall| stall.from_ns);
    let entries = list(&mut top, "workloads", |fields| workload(fields, file));
    // A resource file is about one GPU.
    if entries.iter().any(|(_, workload)| workload.gpus != [0]) {
        mistakes.retain(|mistake| mistake.field != "requests");
    }
    // The clients are complete only if none of them has a mistake.
    if mistakes.is_empty() {
        check_clients(&mut top, &clients, &entries);
        check_requests(&mut top, &clients, &entries);
        let gpus = entries.iter().flat_map(|(_, workload)| &workload.gpus).max().map_or(1, |last| last + 1);
        if let Some(gpu) = stalls.iter().filter_map(|stall| stall.gpu).find(|gpu| *gpu >= gpus) {
            top.wrong("stalls", format!("GPU {gpu}"), "all, or a GPU of a workload");
        }
    }
    // Unknown keys at the top have been named with the clients.
    mistakes.extend(top.mistakes);
    Mistakes::none_or(mistakes)?;
    let workload_of = |client: &ClientEntry| {
        entries.iter().find(|(name, _)| *name == client.name).map(|(_, work)| work.clone())
    };
    let workloads = clients.iter().filter_map(workload_of).collect();
    Ok(Scenario { seed, span_ns, gpu, policies, stalls, clients, workloads })
}

/// Reads each entry of a list; none if the key is missing.
fn list<T>(top: &mut Fields<'_>, key: &'static str, read: impl Fn(&mut Fields<'_>) -> T) -> Vec<T> {
    let entries = match top.value(key) {
        Some(Value::Sequence(entries)) => entries,
        None => return Vec::new(),
        Some(other) => {
            top.wrong(key, shown(&other), "a list");
            return Vec::new();
        }
    };
    let mut result = Vec::with_capacity(entries.len());
    for (index, entry) in entries.into_iter().enumerate() {
        let mut fields = Fields::of(entry, top.part.entry(key, index));
        result.push(read(&mut fields));
        top.mistakes.extend(fields.finish());
    }
    result
}

fn gpu(fields: &mut Fields<'_>) -> Gpu {
    Gpu {
        preempt_ns: fields.duration("preempt", Some("187us")),
        switch_ns: fields.duration("switch", Some("175us")),
        load_ns: fields.duration("load", Some("41us")),
        slice_ns: fields.span("slice", Some("2048us")),
    }
}

fn policies(top: &mut Fields<'_>) -> Vec<PolicyName> {
    let all = PolicyName::VARIANTS.iter().copied();
    let known = all.clone().map(PolicyName::name).collect::<Vec<_>>().join(", ");
    let names = match top.value("policies") {
        None => return all.collect(),
        Some(Value::Sequence(names)) if !names.is_empty() => names,
        Some(other) => vec![other],
    };
    let mut policies = Vec::new();
    for name in names {
        match name.as_str().and_then(|name| name.parse().ok()) {
            Some(policy) => policies.push(policy),
            None => top.wrong("policies", shown(&name), &format!("a list of names out of {known}")),
        }
    }
    policies
}

fn stall(fields: &mut Fields<'_>) -> Stall {
    let from_ns = fields.duration("at", None);
    let lasts = fields.span("lasts", None);
    let gpu = fields.parsed("gpu", Some("all"), GPU, |text| match text {
        "all" => Some(None),
        number => number.parse().ok().filter(|gpu| *gpu < MOST_GPUS).map(Some),
    });
    Stall { from_ns, to_ns: from_ns.saturating_add(lasts), gpu }
}

fn workload(fields: &mut Fields<'_>, file: ReadFile<'_>) -> (String, Workload) {
    let name = fields.word("client", None);
    let arrivals = fields.section("arrivals", |inner| arrivals(inner, file));
    let Work { service, think_ns, exchange_ns } = fields.section("service", service).unwrap_or_else(|| {
        fields.wrong("service", "nothing", "what a request executes");
        service(&mut Fields::empty())
    });
    let gpus = gpus(fields);
    if exchange_ns.is_some() != (gpus.len() > 1) {
        let found = if gpus.len() > 1 { "several GPUs" } else { "one GPU" };
        fields.wrong("gpus", found, "several for service kind gang, one for the others");
    }
    match (arrivals.is_some(), think_ns.is_some()) {
        (true, true) => {
            fields.wrong("arrivals", "arrivals of a training", "none: a step follows the last one")
        }
        (false, false) => fields.wrong("arrivals", "nothing", "when requests arrive"),
        _ => {}
    }
    let closed = Arrivals::Closed { think_ns: think_ns.unwrap_or(0) };
    let linger_ns = fields.duration_if_given("linger");
    let exchange_ns = exchange_ns.unwrap_or(0);
    (name, Workload { arrivals: arrivals.unwrap_or(closed), service, linger_ns, gpus, exchange_ns })
}

/// The GPUs of a workload: the first one if none is named.
fn gpus(fields: &mut Fields<'_>) -> Vec<usize> {
    let number = |value: &Value| {
        value.as_u64().and_then(|gpu| usize::try_from(gpu).ok()).filter(|gpu| *gpu < MOST_GPUS)
    };
    let gpus: Option<BTreeSet<usize>> = match fields.value("gpus") {
        None => return vec![0],
        Some(Value::Sequence(gpus)) if !gpus.is_empty() => gpus.iter().map(number).collect(),
        Some(_) => None,
    };
    gpus.map_or_else(
        || {
            fields.wrong("gpus", "no such list", "a list of numbers of GPUs, each from 0 to 63");
            vec![0]
        },
        |gpus| gpus.into_iter().collect(),
    )
}

fn arrivals(fields: &mut Fields<'_>, file: ReadFile<'_>) -> Arrivals {
    match fields.word("kind", None).as_str() {
        "periodic" => Arrivals::Periodic {
            every_ns: fields.span("every", None),
            jitter_ns: fields.duration("jitter", Some("0")),
        },
        "poisson" => Arrivals::Poisson { mean_ns: fields.span("mean", None) },
        "bursts" => Arrivals::Bursts {
            every_ns: fields.span("every", None),
            requests: fields.count("requests", None),
        },
        "closed" => Arrivals::Closed { think_ns: fields.duration("think", Some("0")) },
        "trace" => Arrivals::Trace(trace(fields, file)),
        other => {
            fields.wrong("kind", format!("{other:?}"), "periodic, poisson, bursts, closed or trace");
            Arrivals::Closed { think_ns: 0 }
        }
    }
}

/// A trace has one arrival in each line, as the time since the start.
fn trace(fields: &mut Fields<'_>, file: ReadFile<'_>) -> Vec<u64> {
    let path = fields.word("file", None);
    let text = file(&path).unwrap_or_else(|why| {
        fields.wrong(
            "file",
            format!("{path:?} ({why})"),
            "a file with one arrival in each line, such as 12.5ms",
        );
        String::new()
    });
    let mut times = Vec::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        match parse_duration(line.trim()) {
            Some(at) if times.last().is_none_or(|last| *last <= at) => times.push(at),
            _ => fields.wrong(
                "file",
                format!("{line:?} in line {} of {path}", number + 1),
                "times since the start in ascending order, such as 12.5ms",
            ),
        }
    }
    times
}

/// What a request executes.
struct Work {
    service: Service,
    /// The pause of the host between two steps of a training or a gang.
    think_ns: Option<u64>,
    /// The collective of a gang.
    exchange_ns: Option<u64>,
}

fn service(fields: &mut Fields<'_>) -> Work {
    let kind = fields.word("kind", None);
    let (burst, bursts, has_gap) = match kind.as_str() {
        "graph" => ("burst", None, false),
        "decode" => ("burst", Some("bursts"), true),
        "host-bound" => ("kernel", Some("launches"), true),
        "training" | "gang" => ("step", None, false),
        other => {
            fields.wrong("kind", format!("{other:?}"), "graph, decode, host-bound, training or gang");
            ("burst", None, false)
        }
    };
    let service = Service {
        burst_ns: fields.span(burst, None),
        bursts: bursts.map_or(1, |bursts| fields.count(bursts, None)),
        gap_ns: if has_gap { fields.duration("gap", None) } else { 0 },
        host: fields.section("host", host).unwrap_or_default(),
        distribution: fields.parsed(
            "distribution",
            Some("constant"),
            "constant or exponential",
            distribution,
        ),
    };
    let think_ns = (burst == "step").then(|| fields.duration("gap", Some("0")));
    let exchange_ns = (kind == "gang").then(|| fields.span("exchange", None));
    Work { service, think_ns, exchange_ns }
}

fn host(fields: &mut Fields<'_>) -> HostTimes {
    HostTimes {
        before_ns: fields.duration("before", Some("0")),
        prepare_ns: fields.duration("prepare", Some("0")),
        after_ns: fields.duration("after", Some("0")),
    }
}

fn distribution(text: &str) -> Option<Distribution> {
    match text {
        "constant" => Some(Distribution::Constant),
        "exponential" => Some(Distribution::Exponential),
        _ => None,
    }
}

/// Each client has one workload, and each workload a client.
fn check_clients(top: &mut Fields<'_>, clients: &[ClientEntry], entries: &[(String, Workload)]) {
    let names: Vec<&str> = clients.iter().map(|client| client.name.as_str()).collect();
    for (index, (name, _)) in entries.iter().enumerate() {
        let (found, expected) = if !names.contains(&name.as_str()) {
            (format!("{name:?}"), format!("one of {}", names.join(", ")))
        } else if entries[..index].iter().any(|(other, _)| other == name) {
            (format!("{name:?} a second time"), "one workload for each client".to_owned())
        } else {
            continue;
        };
        let mistake = top.part.entry("workloads", index).mistake("client", found, &expected);
        top.mistakes.push(mistake);
    }
    for name in names.iter().filter(|name| !entries.iter().any(|(client, _)| client == *name)) {
        top.wrong("workloads", format!("none of client {name:?}"), "one for each client");
    }
}

/// The requests of the clients of each GPU add up to at most 1.
fn check_requests(top: &mut Fields<'_>, clients: &[ClientEntry], entries: &[(String, Workload)]) {
    let mut sums: BTreeMap<usize, u64> = BTreeMap::new();
    for client in clients {
        let workload = entries.iter().find(|(name, _)| *name == client.name);
        for gpu in workload.iter().flat_map(|(_, workload)| &workload.gpus) {
            *sums.entry(*gpu).or_default() += u64::from(client.request.ppm());
        }
    }
    for (gpu, sum) in sums.into_iter().filter(|(_, sum)| *sum > u64::from(Share::ONE.ppm())) {
        let found = format!("{} in sum on GPU {gpu}", sum as f64 / 1e6);
        top.wrong("requests", found, "at most 1 on each GPU");
    }
}
