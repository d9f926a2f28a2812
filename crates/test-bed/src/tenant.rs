//! A load generator under the hook, and the records that it has printed.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use sluice_load::record::{BeCounts, LcCounts, Record};

use crate::process::{Output, Process};
use crate::test_bed::TestBed;

/// How long a tenant may take to set up its context, and to end.
const TIMEOUT: Duration = Duration::from_secs(12);
/// How long the last lines of an ended process may take through the thread that reads them.
const LAST_LINES: Duration = Duration::from_millis(200);

/// A process of a client: `sluice load`. It is killed when this is dropped.
#[derive(Debug)]
pub struct Tenant {
    /// The process.
    pub process: Process,
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
            process: Process::start(name, command, bed.path(), Output::Lines)?,
            started: false,
            be: BeCounts::default(),
            lc: LcCounts::default(),
            final_record: None,
        })
    }

    /// Reads the records that it has printed since the last call. Fails if it has ended or printed a line that is no record.
    pub fn poll(&mut self) -> anyhow::Result<()> {
        self.read_records(Duration::ZERO)?;
        self.process.check_running()
    }

    /// Waits until its first kernel has run. `pause` is called between two polls and may end the wait.
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
                let (name, log) = (self.process.name(), self.process.log_tail());
                bail!("{name} did not get as far as its first kernel{log}");
            }
            pause()?;
        }
    }

    /// Lets tenants end in their own way and reads their final records. A tenant that does not end in time is killed and has
    /// no final record, which is no error here.
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
            let Ok(line) = self.process.next_line(Instant::now() + wait) else { return Ok(()) };
            self.read_record(&line)?;
        }
    }

    fn read_record(&mut self, line: &str) -> anyhow::Result<()> {
        let record =
            Record::parse(line).with_context(|| format!("{} printed {line}", self.process.name()))?;
        match &record {
            Record::Started { .. } => self.started = true,
            Record::BeProgress(counts) | Record::BeFinal { counts, .. } => self.be = counts.clone(),
            Record::LcProgress(counts) | Record::LcFinal { counts, .. } => self.lc = counts.clone(),
        }
        if matches!(record, Record::BeFinal { .. } | Record::LcFinal { .. }) {
            self.final_record = Some(record);
        }
        Ok(())
    }
}
