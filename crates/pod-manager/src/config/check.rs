//! Checks a configuration. All mistakes are reported at once.

use super::{ClientSource, Config, Controls};
use sluice_comm::HOOK_TIMEOUT;
use sluice_core::channel_groups::{DEFAULT_SLICE_US, TINY_SLICE_US};
use sluice_core::processes::ViolationPolicy;
use std::fmt;
use std::time::Duration;

/// Two enabled groups with shorter slices prevent each other from making progress.
const SLICES: &str = "1000 to 1000000 µs";

impl Config {
    /// Checks every field.
    /// Errors: all mistakes, each with the field, its value and the allowed values.
    pub fn check(&self) -> Result<(), ConfigMistakes> {
        let mut mistakes = Vec::new();
        let mut expect = |holds: bool, field: &str, found: String, expected: &str| {
            if !holds {
                mistakes.push(ConfigMistake {
                    field: field.to_owned(),
                    found,
                    expected: expected.to_owned(),
                });
            }
        };
        let path = self.socket.as_os_str().len();
        expect((1..=80).contains(&path), "socket", format!("a path of {path} bytes"), "1 to 80 bytes");
        expect(self.socket_mode <= 0o777, "socket_mode", format!("{:o}", self.socket_mode), "at most 777");
        if let Some(tcp) = self.tcp {
            let expected = "a loopback address: its peers prove nothing";
            expect(tcp.ip().is_loopback(), "tcp", tcp.to_string(), expected);
        }
        if let (Some(metrics), Some(health)) = (self.metrics, self.health) {
            let collide = metrics == health && health.port() != 0;
            expect(!collide, "health", health.to_string(), "another address than that of metrics");
        }
        if let Some(trace) = &self.trace {
            let path = trace.as_os_str().len();
            expect((1..=80).contains(&path), "trace", format!("a path of {path} bytes"), "1 to 80 bytes");
            let is_apart = trace.parent() != self.socket.parent();
            expect(is_apart, "trace", trace.display().to_string(), "another directory than the socket's");
        }
        if let Some(overcommit) = &self.overcommit {
            let quantum = overcommit.quantum;
            let expected = "100 ms to 1 h";
            let is_long = (Duration::from_millis(100)..=Duration::from_secs(3600)).contains(&quantum);
            expect(is_long, "overcommit.quantum", format!("{quantum:?}"), expected);
        }
        match &self.clients {
            ClientSource::File { path, .. } => {
                expect(!path.as_os_str().is_empty(), "resource_file", "empty".into(), "a path");
                // Groups of other GPUs would count as unannounced.
                let knows_gpu = self.gpu_uuid.is_some() || self.controls == Controls::Simulated;
                let expected = "the GPU's uuid, for --adopt auto";
                expect(knows_gpu || !self.unhooked, "gpu_uuid", "none".into(), expected);
                let evicts = self.violation_policy == ViolationPolicy::Evict;
                expect(!evicts, "violation_policy", "evict".into(), "another one without --control");
            }
            ClientSource::Agent(agent) => {
                let path = agent.control.as_os_str().len();
                let found = format!("a path of {path} bytes");
                expect((1..=80).contains(&path), "control", found, "1 to 80 bytes");
                expect(agent.control != self.socket, "control", "the socket".into(), "a socket of its own");
                let uuid = agent.gpu_uuid.as_str();
                let graphic = !uuid.is_empty() && uuid.bytes().all(|byte| byte.is_ascii_graphic());
                expect(graphic, "gpu_uuid", format!("{uuid:?}"), "the GPU's uuid");
                let less = "less than 5 s, after which a hook gives up";
                expect(agent.pending_time < HOOK_TIMEOUT, "hold", format!("{:?}", agent.pending_time), less);
                expect(agent.max_pending <= 65_536, "max_held", agent.max_pending.to_string(), "0 to 65536");
                expect(self.tcp.is_none(), "tcp", "given".into(), "none beside --control");
            }
        }
        let window = self.window;
        let mut span = |field, value: Duration, least: Duration, most: Duration, expected| {
            expect(value >= least && value <= most, field, format!("{value:?}"), expected);
        };
        let (ms, us) = (Duration::from_millis, Duration::from_micros);
        span("window", window, ms(100), ms(3_600_000), "100 ms to 1 h");
        span("min_quota", self.min_quota, ms(1), self.max_quota, "1 ms to max_quota");
        span("base_quota", self.base_quota, self.min_quota, self.max_quota, "min_quota to max_quota");
        span("max_quota", self.max_quota, ms(1), window, "1 ms to window");
        span("limit_period", self.limit_period, ms(1), window, "1 ms to window");
        span("quantum", self.quantum, ms(30), ms(100), "30 to 100 ms");
        span("best_effort_slice", self.best_effort_slice, us(1), us(DEFAULT_SLICE_US), "1 to 2048 µs");
        span("critical_slice", self.critical_slice, us(TINY_SLICE_US), ms(1000), SLICES);
        span("shared_critical_slice", self.shared_critical_slice, us(TINY_SLICE_US), ms(1000), SLICES);
        span("return_timeout", self.return_timeout, us(0), ms(60_000), "at most 1 min");
        span("linger", self.linger, us(0), ms(10), "at most 10 ms");
        span("idle_credit", self.idle_credit, us(0), window, "at most window");
        span("busy_poll", self.busy_poll, us(0), us(200), "at most 200 µs");
        span("missed_heartbeat", self.missed_heartbeat, ms(100), ms(3_600_000), "100 ms to 1 h");
        for (field, value, allowed) in [
            ("node_gpus", self.node_gpus as usize, 1..=64),
            ("capacity", self.capacity, 1..=64),
            ("max_connections", self.max_connections, 1..=65_536),
            ("max_connections_per_process", self.max_connections_per_process, 2..=65_536),
        ] {
            let expected = format!("{} to {}", allowed.start(), allowed.end());
            expect(allowed.contains(&value), field, value.to_string(), &expected);
        }
        if mistakes.is_empty() { Ok(()) } else { Err(ConfigMistakes(mistakes)) }
    }
}

/// One mistake of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {found}, expected {expected}")]
pub struct ConfigMistake {
    /// The field of [`Config`].
    pub field: String,
    /// Its value.
    pub found: String,
    /// The allowed values.
    pub expected: String,
}

/// Every mistake of a configuration; never empty.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigMistakes(Vec<ConfigMistake>);

impl ConfigMistakes {
    /// The mistakes, in the order of the fields.
    pub fn iter(&self) -> impl Iterator<Item = &ConfigMistake> {
        self.0.iter()
    }
}

impl fmt::Display for ConfigMistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mistakes: Vec<String> = self.0.iter().map(ConfigMistake::to_string).collect();
        f.write_str(&mistakes.join("; "))
    }
}

#[cfg(test)]
mod tests;
