//! A load generator under the hook, and the records that it has printed.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use sluice_load::record::{BeCounts, LcCounts, Record};

use crate::process::{NoLine, Output, Process};
use crate::test_bed::TestBed;

/// How long a tenant may take to set up its context, and to end.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(12);
/// How long the last lines of an ended process may take through the thread that reads them.
const LAST_LINES: Duration = Duration::from_millis(200);

/// A process of a client: `sluice load`. It is killed when this is dropped.
#[derive(Debug)]
pub struct Tenant {
    process: Process,
    /// Its context exists and its first kernel has run.
    pub started: bool,
    /// Its last progress, best effort.
    pub be: BeCounts,
    /// Its last progress, latency-critical.
    pub lc: LcCounts,
    /// Its last record, once it has ended in order.
    pub final_record: Option<Record>,
}

impl Tenant {
    /// Starts `sluice load ARGUMENTS` under the hook as a process of `client`. The simulator's ledger labels it `name`.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(
        bed: &TestBed,
        name: &str,
        client: &str,
        arguments: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> anyhow::Result<Self> {
        let mut command = bed.sluice();
        command.arg("load");
        for argument in arguments {
            command.arg(argument.as_ref());
        }
        command.arg("--stop-with-stdin");
        bed.set_gpu(&mut command, name);
        bed.set_hook(&mut command, client);
        Ok(Self {
            process: bed.start_process(name, command, Output::Lines)?,
            started: false,
            be: BeCounts::default(),
            lc: LcCounts::default(),
            final_record: None,
        })
    }

    /// The name given at the start.
    pub fn name(&self) -> &str {
        self.process.name()
    }

    /// Process id.
    pub fn pid(&self) -> i32 {
        self.process.pid()
    }

    /// Its process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// The end of its log, ready to follow a message.
    pub fn log_tail(&self) -> String {
        self.process.log_tail()
    }

    /// Reads the records that it has printed since the last call, and fails if it has ended.
    ///
    /// # Errors
    /// If it ended early or printed a line that is no record.
    pub fn poll(&mut self) -> anyhow::Result<()> {
        self.read_records(Duration::ZERO)?;
        self.process.check_running()
    }

    /// Waits until its first kernel has run. `pause` is called between two polls and may end the wait.
    ///
    /// # Errors
    /// If it does not start in time, and those of `pause`.
    pub fn wait_until_started(
        &mut self,
        mut pause: impl FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            self.poll()?;
            if self.started {
                return Ok(());
            }
            if Instant::now() >= deadline {
                bail!("{} did not get as far as its first kernel{}", self.name(), self.log_tail());
            }
            pause()?;
        }
    }

    /// Lets tenants end in their own way and reads their final records. A tenant that does not end in time is killed and has
    /// no final record, which is no error here.
    ///
    /// # Errors
    /// Those of `pause`, and lines that are no records.
    pub fn finish_all<'a>(
        tenants: impl IntoIterator<Item = &'a mut Self>,
        mut pause: impl FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let mut tenants: Vec<&mut Self> = tenants.into_iter().collect();
        tenants.iter_mut().for_each(|tenant| tenant.process.close_input());
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let mut all_ended = true;
            for tenant in &mut tenants {
                tenant.read_records(Duration::ZERO)?;
                all_ended &= tenant.process.exit_status()?.is_some();
            }
            if all_ended || Instant::now() >= deadline {
                break;
            }
            pause()?;
        }
        for tenant in tenants {
            tenant.process.kill();
            tenant.read_records(LAST_LINES)?;
        }
        Ok(())
    }

    /// Reads records until none comes within `wait`, or none can come.
    fn read_records(&mut self, wait: Duration) -> anyhow::Result<()> {
        loop {
            match self.process.next_line(Instant::now() + wait) {
                Ok(line) => self.read_record(&line)?,
                Err(NoLine::TimedOut | NoLine::Closed) => return Ok(()),
            }
        }
    }

    fn read_record(&mut self, line: &str) -> anyhow::Result<()> {
        let record = Record::parse(line).with_context(|| format!("{} printed {line}", self.name()))?;
        match &record {
            Record::Started { .. } => self.started = true,
            Record::BeProgress(counts) => self.be = counts.clone(),
            Record::LcProgress(counts) => self.lc = counts.clone(),
            Record::BeFinal { counts, .. } => self.be = counts.clone(),
            Record::LcFinal { counts, .. } => self.lc = counts.clone(),
        }
        if matches!(record, Record::BeFinal { .. } | Record::LcFinal { .. }) {
            self.final_record = Some(record);
        }
        Ok(())
    }
}
