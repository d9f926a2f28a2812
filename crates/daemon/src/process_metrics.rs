//! The metrics of this process, with the names that Prometheus's client libraries use, and the dropped lines of its log.
//!
//! The collector of the `prometheus` crate (0.14) brings five more crates and counts CPU time in whole seconds. It gives no labels to the
//! figures of another process, which the node agent needs for its pod-managers ([`ProcessFigures`]).

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Counter, IntCounter, IntGauge, Result};
use std::fs;

/// CPU time, memory, descriptors and threads of this process, read at each scrape.
#[derive(Debug)]
pub struct ProcessCollector {
    cpu: Counter,
    resident: IntGauge,
    descriptors: IntGauge,
    most_descriptors: IntGauge,
    threads: IntGauge,
    dropped: IntCounter,
}

impl ProcessCollector {
    /// A collector to register.
    /// Errors: none that depends on the process.
    pub fn new() -> Result<Self> {
        Ok(Self {
            cpu: Counter::new("process_cpu_seconds_total", "CPU time of this process, seconds")?,
            resident: IntGauge::new(
                "process_resident_memory_bytes",
                "Resident memory of this process, bytes",
            )?,
            descriptors: IntGauge::new("process_open_fds", "Open file descriptors of this process")?,
            most_descriptors: IntGauge::new(
                "process_max_fds",
                "Limit of open file descriptors of this process",
            )?,
            threads: IntGauge::new("process_threads", "Threads of this process")?,
            dropped: IntCounter::new(
                "sluice_log_lines_dropped_total",
                "Log lines dropped because standard error was not read",
            )?,
        })
    }

    fn collectors(&self) -> [&dyn Collector; 6] {
        [&self.cpu, &self.resident, &self.descriptors, &self.most_descriptors, &self.threads, &self.dropped]
    }

    fn refresh(&self) {
        let figures = ProcessFigures::of("self");
        if let Some(seconds) = figures.cpu_seconds {
            self.cpu.inc_by((seconds - self.cpu.get()).max(0.0));
        }
        let gauges = [
            (&self.resident, figures.resident_bytes),
            (&self.descriptors, figures.open_descriptors),
            (&self.most_descriptors, figures.most_descriptors),
            (&self.threads, figures.threads),
        ];
        for (gauge, value) in gauges {
            value.into_iter().for_each(|value| gauge.set(value));
        }
        self.dropped.inc_by(crate::log::dropped_lines().saturating_sub(self.dropped.get()));
    }
}

impl Collector for ProcessCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.collectors().into_iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.refresh();
        self.collectors().into_iter().flat_map(Collector::collect).collect()
    }
}

/// What the kernel reports about one process. A figure that cannot be read is absent.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ProcessFigures {
    /// User and system time.
    pub cpu_seconds: Option<f64>,
    /// Resident memory.
    pub resident_bytes: Option<i64>,
    /// Open file descriptors.
    pub open_descriptors: Option<i64>,
    /// Soft limit of open file descriptors.
    pub most_descriptors: Option<i64>,
    /// Threads.
    pub threads: Option<i64>,
}

impl ProcessFigures {
    /// The figures of a process: its number, or `self`.
    pub fn of(pid: &str) -> Self {
        let path = |file: &str| format!("/proc/{pid}/{file}");
        let read = |file: &str| fs::read_to_string(path(file)).unwrap_or_default();
        let (status, is_this) = (read("status"), pid == "self");
        let descriptors = fs::read_dir(path("fd")).ok().map(Iterator::count);
        Self {
            // The kernel counts it in units of 1/100 s (USER_HZ) on every architecture.
            cpu_seconds: ticks(&read("stat")).map(|ticks| f64::from(ticks) / 100.0),
            resident_bytes: status_field(&status, "VmRSS:").map(|kibibytes| kibibytes * 1024),
            // One of this process's own descriptors is that of the folder.
            open_descriptors: descriptors.and_then(|count| i64::try_from(count - usize::from(is_this)).ok()),
            most_descriptors: soft_limit(&read("limits")),
            threads: status_field(&status, "Threads:"),
        }
    }
}

fn status_field(status: &str, name: &str) -> Option<i64> {
    let value = status.lines().find_map(|line| line.strip_prefix(name))?;
    value.split_whitespace().next()?.parse().ok()
}

/// Fields 14 and 15 of /proc/PID/stat. The second field is a name in parentheses that may contain anything.
fn ticks(stat: &str) -> Option<u32> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let (user, system): (u32, u32) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    user.checked_add(system)
}

fn soft_limit(limits: &str) -> Option<i64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus::{Registry, TextEncoder};

    #[test]
    fn values_are_found_in_the_files_of_proc() {
        let status = "Name:\tsluice\nVmRSS:\t    2048 kB\nThreads:\t7\n";
        assert_eq!([status_field(status, "VmRSS:"), status_field(status, "Threads:")], [Some(2048), Some(7)]);
        assert_eq!(status_field(status, "VmSwap:"), None);
        let stat = "12 (a ) b) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0";
        assert_eq!(ticks(stat), Some(300));
        assert_eq!(soft_limit("Max open files            1024                 4096     files\n"), Some(1024));
    }

    #[test]
    fn figures_of_an_ended_process_are_absent() {
        // Above the highest pid that Linux has.
        assert_eq!(ProcessFigures::of("4194305"), ProcessFigures::default());
        let own = ProcessFigures::of(&std::process::id().to_string());
        assert!(own.resident_bytes > Some(1 << 20) && own.open_descriptors > Some(2), "{own:?}");
    }

    #[test]
    fn each_scrape_shows_this_process() {
        let registry = Registry::new();
        registry.register(Box::new(ProcessCollector::new().unwrap())).unwrap();
        let value = |name: &str| {
            let text = TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
            let line = text.lines().find_map(|line| line.strip_prefix(name).map(str::to_owned));
            line.unwrap().trim().parse::<f64>().unwrap()
        };
        let before = value("process_open_fds ");
        // More than the other tests of this process close meanwhile.
        let _files: Vec<_> = (0..64).map(|_| fs::File::open("/proc/self/stat").unwrap()).collect();
        assert!(value("process_open_fds ") >= before + 32.0);
        assert!(value("process_max_fds ") > before);
        assert!(value("process_resident_memory_bytes ") > 1e6 && value("process_threads ") >= 1.0);
        while value("process_cpu_seconds_total ") == 0.0 {}
        assert_eq!(value("sluice_log_lines_dropped_total "), 0.0);
    }
}
