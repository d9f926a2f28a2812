//! A reader of the trace socket that reads when the test says so.

use super::World;
use super::hook::PATIENCE;
use sluice_pod_manager::trace::TraceEvent;
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;

/// A connected reader.
pub struct TraceReader {
    lines: BufReader<UnixStream>,
    /// What it has read so far.
    pub events: Vec<TraceEvent>,
}

impl TraceReader {
    /// Connects. It has read the state when this returns.
    pub fn connect(world: &World) -> Self {
        Self::try_connect(world).expect("the manager serves a further reader")
    }

    /// Connects; `None` if the manager closes the connection at once.
    pub fn try_connect(world: &World) -> Option<Self> {
        let stream = UnixStream::connect(world.config.trace.as_ref().unwrap()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut reader = Self { lines: BufReader::new(stream), events: Vec::new() };
        let first = reader.next()?;
        reader.events.push(first);
        reader.read_all(world);
        Some(reader)
    }

    /// Reads what the manager has done so far. Moves time on by a nanosecond.
    pub fn read_all(&mut self, world: &World) {
        world.settle();
        world.advance(1);
        let now = world.clock.now();
        loop {
            let event = self.next().expect("the manager sends events");
            let is_last = matches!(event, TraceEvent::Time { at_ns } if at_ns >= now);
            self.events.push(event);
            if is_last {
                return;
            }
        }
    }

    fn next(&mut self) -> Option<TraceEvent> {
        let mut line = String::new();
        // A refused connection may end with a reset.
        let count = self.lines.read_line(&mut line).unwrap_or(0);
        (count > 0).then(|| serde_json::from_str(&line).unwrap())
    }

    /// The quanta of each process as begin and end; those that have not ended end now.
    pub fn quanta(&self, world: &World) -> Vec<(u64, u64, u64)> {
        let (mut open, mut quanta) = (std::collections::BTreeMap::new(), Vec::new());
        for event in &self.events {
            match event {
                TraceEvent::QuantumBegan { at_ns, process } => {
                    assert_eq!(
                        open.insert(*process, *at_ns),
                        None,
                        "a quantum of {process} has begun already"
                    );
                }
                TraceEvent::QuantumEnded { at_ns, process } => {
                    let begin = open.remove(process).expect("the quantum has begun");
                    quanta.push((*process, begin, *at_ns));
                }
                _ => {}
            }
        }
        quanta.extend(open.into_iter().map(|(process, begin)| (process, begin, world.clock.now())));
        quanta
    }

    /// The number of a client's only process.
    pub fn process_of(&self, name: &str) -> u64 {
        let client = self.events.iter().find_map(|event| match event {
            TraceEvent::Client { client, name: found } if found == name => Some(*client),
            _ => None,
        });
        let process = self.events.iter().find_map(|event| match event {
            TraceEvent::Process { process, client: of, .. } if Some(*of) == client => Some(*process),
            _ => None,
        });
        process.expect("the client has a process")
    }
}
