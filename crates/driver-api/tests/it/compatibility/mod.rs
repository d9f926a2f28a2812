//! The text of docs/compatibility.md: what the hook does with each function of the driver.

mod reasons;

use std::fmt::Write;

use sluice_driver_api::{ENTRIES, Entry, Policy};

/// What the hook does with a function.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Treatment {
    /// The call passes a part of the hook that may delay, order, observe or change it.
    Governed,
    /// The call changes the memory that the pod is charged.
    Charged,
    /// The call uses GPU time or memory that the hook does not count.
    Bypassed,
    /// The call goes to the driver unchanged.
    Forwarded,
}

impl Treatment {
    const fn word(self) -> &'static str {
        match self {
            Self::Governed => "governed",
            Self::Charged => "charged",
            Self::Bypassed => "bypassed",
            Self::Forwarded => "forwarded",
        }
    }
}

/// Treatment and reason of a policy. A forwarded function has a reason of its own.
const fn of_policy(policy: Policy) -> Option<(Treatment, &'static str)> {
    use Treatment::{Charged, Governed};
    Some(match policy {
        Policy::Launch | Policy::Cooperative => (Governed, "waits at the launch gate"),
        Policy::ContextLimit => (
            Charged,
            "stacks and the heap of kernels are charged by what exceeds the initial limit. The driver may wait: hold kernels end before",
        ),
        Policy::GatedOrder | Policy::GatedTurn | Policy::GatedCopy | Policy::GatedSync => {
            (Governed, "waits at the launch gate, unless the process has an unlimited grant")
        }
        Policy::Sync => (
            Governed,
            "may wait for the GPU: hold kernels and stream gates give way, and the wait shows which work has finished",
        ),
        Policy::Copy => (
            Governed,
            "may begin a request; kept in order with preempted streams. The copy itself passes no launch gate",
        ),
        Policy::Alloc | Policy::AllocAsync => {
            (Charged, "charged before the driver allocates; refused above the limit")
        }
        Policy::Free => (Charged, "releases the charge"),
        Policy::Pool => (Charged, "tells where the pool has its memory"),
        Policy::Trim => (Charged, "the charge follows the size of the pool"),
        Policy::Physical => (Charged, "a mapping keeps the charge of the memory, as a handle does"),
        Policy::Resident => (Governed, "waits until memory that has left the GPU has returned"),
        Policy::Init => (Governed, "the hook reads its configuration"),
        Policy::Query => (Governed, "returns the limit as the size of the GPU"),
        Policy::Lookup => (Governed, "returns the hook's functions"),
        Policy::Capture => (Governed, "the hook uses no captured stream"),
        Policy::Stream => (Governed, "work that waits in a destroyed stream is completed"),
        Policy::Context => {
            (Governed, "follows the current context; the charge of a context's memory ends with it")
        }
        Policy::Event => (Governed, "kept in order with preempted streams"),
        Policy::Order | Policy::Turn => (Governed, "kept in order with preempted streams"),
        Policy::Ask => (Governed, "answered for the stream as the program sees it"),
        Policy::Graph => (Governed, "changes a graph after its pending launches"),
        Policy::Forward => return None,
    })
}

/// Treatment and reason of a function; `None` if the tables have none.
fn treatment(entry: &Entry) -> Option<(Treatment, &'static str)> {
    let named = reasons::NAMED.iter().find(|(name, ..)| *name == entry.name);
    let forwarded = || {
        let fits = reasons::FORWARDED.iter().find(|(begin, _)| entry.name.starts_with(begin));
        fits.map(|(_, reason)| (Treatment::Forwarded, *reason))
    };
    named
        .map(|(_, treatment, reason)| (*treatment, *reason))
        .or_else(|| of_policy(entry.policy))
        .or_else(forwarded)
}

const HEAD: &str = "\
# Compatibility: driver functions and frameworks under the hook

Written by `cargo run -p sluice-driver-api --example print_compatibility > docs/compatibility.md`; a test compares it. The functions are
those of the CUDA driver API that [the table](../tools/driver-api/README.md) knows. A name covers all its versions and per-thread variants.
A function that a newer driver adds is forwarded.

| word | meaning |
|---|---|
| governed | the call passes a part of the hook that may delay, order, observe or change it |
| charged | the call changes the memory that the pod is charged |
| bypassed | the call uses GPU time or memory that the hook does not count |
| forwarded | the call goes to the driver unchanged |

What a user sees of memory that the hook does not charge: [memory](design/memory.md#counted-by-the-overhead-only).

";

/// Frameworks that were run under the hook. Written by hand from the named results.
const WORKLOADS: &str = include_str!("workloads.md");

/// The whole document.
pub(crate) fn text() -> String {
    let mut names: Vec<&Entry> = ENTRIES.iter().collect();
    names.dedup_by_key(|entry| entry.name);
    let known: Vec<_> = names.iter().filter_map(|entry| Some((entry.name, treatment(entry)?))).collect();
    let mut text = HEAD.to_owned() + WORKLOADS;
    let count = |which| known.iter().filter(|(_, (treatment, _))| *treatment == which).count();
    let counts = [Treatment::Governed, Treatment::Charged, Treatment::Bypassed, Treatment::Forwarded]
        .map(|which| format!("{} {}", count(which), which.word()));
    let _written = writeln!(
        text,
        "{} functions: {}.\n\n| function | hook | reason |\n|---|---|---|",
        known.len(),
        counts.join(", ")
    );
    for (name, (treatment, reason)) in known {
        let _written = writeln!(text, "| `{name}` | {} | {reason} |", treatment.word());
    }
    text
}

#[test]
fn committed_document_is_current() {
    assert!(
        text() == include_str!("../../../../../docs/compatibility.md"),
        "run: cargo run -p sluice-driver-api --example print_compatibility > docs/compatibility.md"
    );
}

#[test]
fn every_function_has_a_treatment_and_a_reason() {
    let without: Vec<_> =
        ENTRIES.iter().filter(|entry| treatment(entry).is_none()).map(|entry| entry.symbol).collect();
    assert_eq!(without, [""; 0], "add a policy in policies.toml, or a reason in compatibility/reasons.rs");
}

#[test]
fn every_reason_belongs_to_a_function() {
    for (name, ..) in reasons::NAMED {
        assert!(ENTRIES.iter().any(|entry| entry.name == *name), "{name} does not exist");
    }
    for (begin, reason) in reasons::FORWARDED {
        let uses = |entry: &Entry| treatment(entry).is_some_and(|(_, used)| used == *reason);
        let used = ENTRIES.iter().any(|entry| entry.name.starts_with(begin) && uses(entry));
        assert!(used, "no forwarded function begins with {begin}");
    }
}
