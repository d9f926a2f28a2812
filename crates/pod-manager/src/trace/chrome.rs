//! A trace in the JSON format of Chrome's trace events, which Perfetto reads.
//!
//! The process "GPU" has a track with the controls and a track for each process that uses the GPU. Each client is a process with the track
//! of its decisions, a track for each of its processes, and tracks for its requests, its hold kernels and its gang's slots.

mod row;

use super::event::{Decision, TraceEvent};
use row::{Phase, Row};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// The GPU's number among the processes of the trace; client N has this plus N.
const GPU: u64 = 1;

/// The track with the controls. All tracks have numbers from here on, because a track with the number of a process counts as its main thread.
const CONTROLS: u64 = 1_000_000;

/// Readings of a burst that is going on follow each other: with a shorter gap they are one.
const GAP_NS: u64 = 1_000;

/// Writes events, as a reader has received them, as one JSON object.
/// Errors: what writing returns.
pub fn write_chrome(events: &[TraceEvent], out: &mut impl Write) -> io::Result<()> {
    let mut trace = ChromeTrace::new(events);
    events.iter().for_each(|event| trace.add(event));
    trace.finish();
    let (begin, end) = trace.span;
    write!(out, "{{\"displayTimeUnit\":\"ms\",\"otherData\":{{\"clock\":\"CLOCK_MONOTONIC\",")?;
    writeln!(
        out,
        "\"begin_ns\":{begin},\"end_ns\":{end},\"lost_events\":{}}},\"traceEvents\":[",
        trace.lost
    )?;
    for (index, row) in trace.rows.iter().enumerate() {
        row.write(out)?;
        out.write_all(if index + 1 < trace.rows.len() { b",\n" } else { b"\n" })?;
    }
    writeln!(out, "]}}")
}

/// A process of a client.
#[derive(Clone, Copy)]
struct Process {
    client: u64,
    pid: Option<i32>,
}

/// A slot that is in force.
#[derive(Clone, Copy)]
struct Slot {
    from_ns: u64,
    start_ns: u64,
    end_ns: u64,
    cycle_ns: u64,
}

/// The rows so far, and what has begun and not ended.
struct ChromeTrace {
    /// Begin and end of the trace.
    span: (u64, u64),
    /// Until when the reader had all events.
    read_to: u64,
    /// What began earlier is shown from here on: the begin of the trace, or the time at which events were lost.
    shown_from: u64,
    clients: BTreeMap<u64, String>,
    processes: BTreeMap<u64, Process>,
    /// Tracks by process of the trace and name. Their numbers are different in the whole trace.
    tracks: BTreeMap<(u64, String), u64>,
    quanta: BTreeMap<u64, u64>,
    work: BTreeMap<u64, (u64, u64)>,
    slots: BTreeMap<u64, Slot>,
    /// Number of the next slice of its own.
    next_slice: u64,
    lost: u64,
    rows: Vec<Row>,
}

impl ChromeTrace {
    fn new(events: &[TraceEvent]) -> Self {
        let times = || {
            events
                .iter()
                .filter_map(|event| if let TraceEvent::Time { at_ns } = event { Some(*at_ns) } else { None })
        };
        let span = (times().min().unwrap_or(0), times().max().unwrap_or(0));
        let (mut clients, mut processes) = (BTreeMap::new(), BTreeMap::new());
        for event in events {
            match event {
                TraceEvent::Client { client, name } => drop(clients.insert(*client, name.clone())),
                TraceEvent::Process { process, client, pid } => {
                    processes.insert(*process, Process { client: *client, pid: *pid });
                }
                _ => {}
            }
        }
        let mut trace = Self {
            span,
            read_to: span.0,
            shown_from: span.0,
            clients,
            processes,
            tracks: BTreeMap::new(),
            quanta: BTreeMap::new(),
            work: BTreeMap::new(),
            slots: BTreeMap::new(),
            next_slice: 1,
            lost: 0,
            rows: vec![Row::name("process_name", GPU, GPU, "GPU")],
        };
        trace.tracks.insert((GPU, "controls".to_owned()), CONTROLS);
        trace.rows.push(Row::name("thread_name", GPU, CONTROLS, "controls"));
        for (client, name) in &trace.clients {
            trace.rows.push(Row::name("process_name", GPU + client, GPU + client, name));
        }
        trace
    }

    fn add(&mut self, event: &TraceEvent) {
        match event {
            TraceEvent::Client { .. } | TraceEvent::Process { .. } => {}
            TraceEvent::Time { at_ns } => self.read_to = *at_ns,
            TraceEvent::Decision { at_ns, client, process, decision } => {
                self.decision(*at_ns, *client, *process, decision);
            }
            TraceEvent::QuantumBegan { at_ns, process } => {
                self.quanta.entry(*process).or_insert(*at_ns);
            }
            TraceEvent::QuantumEnded { at_ns, process } => self.end_quantum(*process, *at_ns, true),
            TraceEvent::Control { begin_ns, took_ns, group, client, control, slice_us, outcome } => {
                let client = client.map(|client| self.client(client));
                let args =
                    json!({ "client": client, "group": group, "outcome": outcome, "slice_us": slice_us });
                let row = Row::new(Phase::Complete(*took_ns), (GPU, CONTROLS), *begin_ns, control);
                self.rows.push(row.with("control", args));
            }
            TraceEvent::Hold { at_ns, process, held_ns } => {
                let args = json!({ "process": self.label(*process) });
                self.slice(*process, "hold kernel", (at_ns.saturating_sub(*held_ns), *at_ns), args);
            }
            TraceEvent::Work { begin_ns, end_ns, process } => self.add_work(*process, *begin_ns, *end_ns),
            TraceEvent::Requests { at_ns, process, count, sum_ns } => {
                let mean_ns = sum_ns / (*count).max(1);
                let args = json!({ "process": self.label(*process), "requests": count, "sum_ns": sum_ns });
                self.slice(*process, "request", (at_ns.saturating_sub(mean_ns), *at_ns), args);
            }
            TraceEvent::GangSlot { at_ns, client, start_ns, end_ns, cycle_ns } => {
                self.end_slot(*client, *at_ns);
                let slot =
                    Slot { from_ns: *at_ns, start_ns: *start_ns, end_ns: *end_ns, cycle_ns: *cycle_ns };
                self.slots.insert(*client, slot);
            }
            TraceEvent::GangSlotEnded { at_ns, client } => self.end_slot(*client, *at_ns),
            TraceEvent::Lost { at_ns, count } => {
                self.end_all(self.read_to);
                self.lost = self.lost.saturating_add(*count);
                let row = Row::new(Phase::Instant, (GPU, CONTROLS), *at_ns, "events lost");
                self.rows.push(row.with("lost", json!({ "events": count })));
                self.shown_from = *at_ns;
            }
        }
    }

    /// Ends what has not ended.
    fn finish(&mut self) {
        self.end_all(self.span.1);
    }

    fn end_all(&mut self, at: u64) {
        for process in self.quanta.keys().copied().collect::<Vec<_>>() {
            self.end_quantum(process, at, false);
        }
        for process in self.work.keys().copied().collect::<Vec<_>>() {
            self.end_work(process);
        }
        for client in self.slots.keys().copied().collect::<Vec<_>>() {
            self.end_slot(client, at);
        }
    }

    fn decision(&mut self, at_ns: u64, client: u64, process: Option<u64>, decision: &Decision) {
        let mut args = serde_json::to_value(decision).unwrap_or_default();
        let name = args.get("decision").and_then(Value::as_str).unwrap_or("decision").to_owned();
        if let (Some(args), Some(process)) = (args.as_object_mut(), process) {
            args.remove("decision");
            args.insert("process".to_owned(), self.label(process).into());
        }
        let track = self.track(GPU + client, "decisions".to_owned());
        self.rows.push(Row::new(Phase::Instant, track, at_ns, &name).with("decision", args));
    }

    fn end_quantum(&mut self, process: u64, at_ns: u64, ended: bool) {
        let Some(begin) = self.quanta.remove(&process) else { return };
        self.on_gpu(process, "quantum", (begin, at_ns), json!({ "ended": ended }));
    }

    fn add_work(&mut self, process: u64, begin_ns: u64, end_ns: u64) {
        match self.work.get_mut(&process) {
            Some((_, end)) if begin_ns <= end.saturating_add(GAP_NS) => *end = end_ns.max(*end),
            _ => {
                self.end_work(process);
                self.work.insert(process, (begin_ns, end_ns));
            }
        }
    }

    fn end_work(&mut self, process: u64) {
        if let Some(span) = self.work.remove(&process) {
            self.on_gpu(process, "work", span, json!({}));
        }
    }

    /// Shows that a process had the GPU: on its own track, and on its track of the GPU.
    fn on_gpu(&mut self, process: u64, name: &'static str, (begin, end): (u64, u64), args: Value) {
        let begin = begin.max(self.shown_from);
        let (of, label) = (self.process(process), self.label(process));
        let length = end.saturating_sub(begin);
        let track = self.track(GPU + of.client, label.clone());
        self.rows.push(Row::new(Phase::Complete(length), track, begin, name).with(name, args));
        let (client, args) = (self.client(of.client), json!({ "process": label, "for": name }));
        let track = (GPU, GPU);
        self.rows.push(Row::new(Phase::Begin(process), track, begin, &client).with("gpu", args));
        self.rows.push(Row::new(Phase::End(process), track, begin + length, &client).with("gpu", json!({})));
    }

    /// A slice of a client that others of the same name may overlap.
    fn slice(&mut self, process: u64, name: &'static str, (begin, end): (u64, u64), args: Value) {
        let (pid, number) = (GPU + self.process(process).client, self.next_slice);
        self.next_slice += 1;
        let begin = begin.clamp(self.shown_from.min(end), end);
        self.rows.push(Row::new(Phase::Begin(number), (pid, pid), begin, name).with(name, args));
        self.rows.push(Row::new(Phase::End(number), (pid, pid), end, name).with(name, json!({})));
    }

    fn end_slot(&mut self, client: u64, at_ns: u64) {
        let Some(slot) = self.slots.remove(&client).filter(|slot| slot.cycle_ns > 0) else { return };
        let track = self.track(GPU + client, "gang slot".to_owned());
        let mut cycle = slot.from_ns - slot.from_ns % slot.cycle_ns;
        while cycle < at_ns {
            let begin = cycle.saturating_add(slot.start_ns).max(slot.from_ns);
            let end = cycle.saturating_add(slot.end_ns).min(at_ns);
            if begin < end {
                let row = Row::new(Phase::Complete(end - begin), track, begin, "slot");
                self.rows.push(row.with("gang", json!({})));
            }
            cycle = cycle.saturating_add(slot.cycle_ns);
        }
    }

    fn track(&mut self, pid: u64, name: String) -> (u64, u64) {
        let next = self.tracks.len() as u64 + CONTROLS;
        let rows = &mut self.rows;
        let tid = *self.tracks.entry((pid, name)).or_insert_with_key(|(pid, name)| {
            rows.push(Row::name("thread_name", *pid, next, name));
            next
        });
        (pid, tid)
    }

    fn process(&self, process: u64) -> Process {
        self.processes.get(&process).copied().unwrap_or(Process { client: 0, pid: None })
    }

    fn label(&self, process: u64) -> String {
        match self.process(process).pid {
            Some(pid) => format!("process {pid}"),
            None => format!("process #{process}"),
        }
    }

    fn client(&self, client: u64) -> String {
        self.clients.get(&client).cloned().unwrap_or_else(|| format!("client #{client}"))
    }
}

#[cfg(test)]
mod tests;
