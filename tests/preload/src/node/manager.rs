//! A node's pod-manager: what a test does to it, and what it reports.

use super::{Node, between_polls};
use crate::waiting::{TIMEOUT, eventually};
use nix::sys::signal::Signal;
use sluice_test_bed::Metrics;

impl Node {
    /// Replaces the resource file by renaming.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn write_resources(&self, text: &str) {
        self.bed.write_resource_file(text).unwrap_or_else(|error| panic!("{error:#}"));
    }

    /// Starts the pod-manager and waits until it serves.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start_manager(&mut self) {
        self.bed.start_manager(between_polls).unwrap_or_else(|error| panic!("{error:#}"));
    }

    /// Stops the pod-manager with SIGSTOP: it hangs, and its connections stay open.
    ///
    /// # Panics
    /// When there is none.
    pub fn stop_manager(&self) {
        self.bed.signal_manager(Signal::SIGSTOP).unwrap_or_else(|error| panic!("{error:#}"));
    }

    /// Lets a stopped pod-manager run again.
    ///
    /// # Panics
    /// When there is none.
    pub fn resume_manager(&self) {
        self.bed.signal_manager(Signal::SIGCONT).unwrap_or_else(|error| panic!("{error:#}"));
    }

    /// Kills the pod-manager as an out-of-memory killer does, and waits until it is gone.
    pub fn kill_manager(&mut self) {
        self.bed.kill_manager();
    }

    /// Ends the pod-manager with SIGTERM, and waits until it has ended.
    ///
    /// # Panics
    /// When it does not end with status 0.
    pub fn end_manager(&mut self) {
        self.bed.end_manager().unwrap_or_else(|error| panic!("{error:#}"));
    }

    /// The pod-manager's pid.
    ///
    /// # Panics
    /// When there is none.
    pub fn manager_pid(&self) -> i32 {
        self.bed.manager_pid().expect("a pod-manager runs")
    }

    /// Whether the pod-manager still runs.
    pub fn manager_runs(&mut self) -> bool {
        self.bed.is_manager_running()
    }

    /// The log of all pod-managers of this node.
    pub fn manager_log(&self) -> String {
        self.bed.manager_log()
    }

    /// Waits until the pod-manager's log has a line that contains all of `words`, and returns the line.
    ///
    /// # Panics
    /// When it never has.
    #[track_caller]
    pub fn logged(&self, words: &[&str]) -> String {
        eventually(&format!("a log line with {words:?}"), || {
            let log = self.manager_log();
            log.lines().find(|line| words.iter().all(|word| line.contains(word))).map(str::to_owned)
        })
    }

    /// Waits until the manager has counted a violation of this kind. Others are mistakes of the manager.
    ///
    /// # Panics
    /// When it never counts one.
    #[track_caller]
    pub fn expect_violation(&self, kind: &'static str) {
        self.logged(&["violation: ", kind]);
        self.violation.set(Some(kind));
    }

    /// The pod-manager's metrics.
    ///
    /// # Panics
    /// When it does not serve them.
    pub fn metrics(&self) -> Metrics {
        Metrics::scrape_within(TIMEOUT, self.bed.metrics_address())
            .unwrap_or_else(|error| panic!("scraping metrics: {error:#}"))
    }

    /// One metric of one client, zero when there is no such series.
    ///
    /// # Panics
    /// When the pod-manager does not serve metrics.
    pub fn metric(&self, name: &str, client: &str) -> f64 {
        self.metrics().of_client(name, client).unwrap_or(0.0)
    }
}
