//! The scenario file: a resource file in YAML with the further keys `seed`, `duration`, `gpu`, `policies`, `stalls` and
//! `workloads`. As in the resource file, every mistake is reported at once.

use super::fields::{Fields, Part, shown};
use super::{Arrivals, Distribution, Gpu, Scenario, Service, Stall, Workload};
use crate::policy_name::PolicyName;
use serde_yaml::Value;
use sluice_core::resources::{ClientEntry, Mistake, Mistakes, parse_beside};
use sluice_core::share::parse_duration;

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
    let gpu = gpu(&mut top);
    let policies = policies(&mut top);
    let stalls = list(&mut top, "stalls", stall);
    let entries = list(&mut top, "workloads", |fields| workload(fields, file));
    // The clients are complete only if none of them has a mistake.
    if mistakes.is_empty() {
        check_clients(&mut top, &clients, &entries);
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

fn gpu(top: &mut Fields<'_>) -> Gpu {
    let none = || Value::Mapping(serde_yaml::Mapping::new());
    let mut fields = top.inner("gpu").unwrap_or_else(|| Fields::of(none(), top.part.clone()));
    let gpu = Gpu {
        preempt_ns: fields.duration("preempt", Some("187us")),
        switch_ns: fields.duration("switch", Some("175us")),
        load_ns: fields.duration("load", Some("41us")),
        slice_ns: fields.span("slice", Some("2048us")),
    };
    top.mistakes.extend(fields.finish());
    gpu
}

fn policies(top: &mut Fields<'_>) -> Vec<PolicyName> {
    let names = match top.value("policies") {
        None => return PolicyName::ALL.to_vec(),
        Some(Value::Sequence(names)) if !names.is_empty() => names,
        Some(_) => Vec::new(),
    };
    let known = PolicyName::ALL.map(PolicyName::name).join(", ");
    if names.is_empty() {
        top.wrong("policies", "no list of names", &format!("a list of {known}"));
    }
    let mut read = |name: &Value| {
        let policy = PolicyName::ALL.into_iter().find(|policy| name.as_str() == Some(policy.name()));
        if policy.is_none() {
            top.wrong("policies", shown(name), &format!("one of {known}"));
        }
        policy
    };
    names.iter().filter_map(&mut read).collect()
}

fn stall(fields: &mut Fields<'_>) -> Stall {
    let from_ns = fields.duration("at", None);
    let lasts = fields.span("lasts", None);
    Stall { from_ns, to_ns: from_ns.saturating_add(lasts) }
}

fn workload(fields: &mut Fields<'_>, file: ReadFile<'_>) -> (String, Workload) {
    let name = fields.word("client", None);
    let mut mistakes = Vec::new();
    let arrivals = fields.inner("arrivals").map(|mut inner| {
        let arrivals = arrivals(&mut inner, file);
        mistakes.extend(inner.finish());
        arrivals
    });
    let service = fields.inner("service").map(|mut inner| {
        let service = service(&mut inner);
        mistakes.extend(inner.finish());
        service
    });
    fields.mistakes.append(&mut mistakes);
    let Some((service, step_gap_ns)) = service else {
        fields.wrong("service", "nothing", "what a request executes");
        let service = Service { bursts: 1, burst_ns: 1, distribution: Distribution::Constant, gap_ns: 0 };
        return (name, Workload { arrivals: Arrivals::Closed { think_ns: 0 }, service });
    };
    let closed = Arrivals::Closed { think_ns: step_gap_ns.unwrap_or(0) };
    match (arrivals.is_some(), step_gap_ns.is_some()) {
        (true, true) => {
            fields.wrong("arrivals", "arrivals of a training", "none: a step follows the last one")
        }
        (false, false) => fields.wrong("arrivals", "nothing", "when requests arrive"),
        _ => {}
    }
    (name, Workload { arrivals: arrivals.flatten().unwrap_or(closed), service })
}

fn arrivals(fields: &mut Fields<'_>, file: ReadFile<'_>) -> Option<Arrivals> {
    Some(match fields.word("kind", None).as_str() {
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
            return None;
        }
    })
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

/// What a request executes. For a training also the pause of the host between two steps.
fn service(fields: &mut Fields<'_>) -> (Service, Option<u64>) {
    let kind = fields.word("kind", None);
    let kinds = ["graph", "decode", "host-bound", "training"];
    if !kinds.contains(&kind.as_str()) {
        fields.wrong("kind", format!("{kind:?}"), "graph, decode, host-bound or training");
    }
    let is_training = kind == "training";
    let (burst, bursts, gap) = match kind.as_str() {
        "decode" => ("burst", "bursts", Some("gap")),
        "host-bound" => ("kernel", "launches", Some("gap")),
        "training" => ("step", "", None),
        _ => ("burst", "", None),
    };
    let service = Service {
        burst_ns: fields.span(burst, None),
        bursts: if bursts.is_empty() { 1 } else { fields.count(bursts, None) },
        gap_ns: gap.map_or(0, |gap| fields.duration(gap, None)),
        distribution: fields.parsed(
            "distribution",
            Some("constant"),
            "constant or exponential",
            distribution,
        ),
    };
    let step_gap_ns = is_training.then(|| fields.duration("gap", Some("0")));
    (service, step_gap_ns)
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
    let mut mistakes: Vec<Mistake> = Vec::new();
    for (index, (name, _)) in entries.iter().enumerate() {
        let part = top.part.entry("workloads", index);
        if !names.contains(&name.as_str()) {
            mistakes.push(part.mistake(
                "client",
                format!("{name:?}"),
                &format!("one of {}", names.join(", ")),
            ));
        } else if entries[..index].iter().any(|(other, _)| other == name) {
            mistakes.push(part.mistake(
                "client",
                format!("{name:?} a second time"),
                "one workload for each client",
            ));
        }
    }
    for name in names {
        if !entries.iter().any(|(client, _)| client == name) {
            mistakes.push(top.part.mistake(
                "workloads",
                format!("none of client {name:?}"),
                "one for each client",
            ));
        }
    }
    top.mistakes.extend(mistakes);
}
