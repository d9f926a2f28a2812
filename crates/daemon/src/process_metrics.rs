//! The metrics of this process, with the names that Prometheus's client libraries use, and the dropped lines of its log.
//!
//! The collector of the `prometheus` crate brings five more crates and counts CPU time in whole seconds.

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
        if let Some(status) = fs::read_to_string("/proc/self/status").ok().as_deref().and_then(Status::parse)
        {
            self.resident.set(status.resident_bytes);
            self.threads.set(status.threads);
        }
        if let Some(seconds) = cpu_seconds() {
            self.cpu.inc_by((seconds - self.cpu.get()).max(0.0));
        }
        if let Ok(entries) = fs::read_dir("/proc/self/fd") {
            // One of them is the folder itself.
            self.descriptors.set(i64::try_from(entries.count()).unwrap_or(i64::MAX).saturating_sub(1));
        }
        let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
        if let Some(most) = soft_limit(&limits) {
            self.most_descriptors.set(most);
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

/// What /proc/PID/status holds of interest.
#[derive(Debug, PartialEq, Eq)]
struct Status {
    resident_bytes: i64,
    threads: i64,
}

impl Status {
    fn parse(text: &str) -> Option<Self> {
        let field = |name: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(name))?;
            value.split_whitespace().next()?.parse::<i64>().ok()
        };
        Some(Self { resident_bytes: field("VmRSS:")? * 1024, threads: field("Threads:")? })
    }
}

/// User and system time of this process. The kernel counts it in units of 1/100 s (USER_HZ) on every architecture.
fn cpu_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    ticks(&stat).map(|ticks| f64::from(ticks) / 100.0)
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
        assert_eq!(Status::parse(status), Some(Status { resident_bytes: 2 << 20, threads: 7 }));
        let stat = "12 (a ) b) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0";
        assert_eq!(ticks(stat), Some(300));
        assert_eq!(soft_limit("Max open files            1024                 4096     files\n"), Some(1024));
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
        let _files = [fs::File::open("/proc/self/stat").unwrap(), fs::File::open("/proc/self/stat").unwrap()];
        assert!(value("process_open_fds ") >= before + 2.0);
        assert!(value("process_max_fds ") > before);
        assert!(value("process_resident_memory_bytes ") > 1e6 && value("process_threads ") >= 1.0);
        while value("process_cpu_seconds_total ") == 0.0 {}
        assert_eq!(value("sluice_log_lines_dropped_total "), 0.0);
    }
}
