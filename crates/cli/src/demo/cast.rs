//! The tenants of a run: their processes and what they have said.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use sluice_load::record::{BeCounts, LcCounts, Record};
use sluice_load::samples::Quantiles;

use super::plan::{Class, Tenant};
use super::verdict::Outcome;
use super::witness::Seen;
use crate::stage::Stage;
use crate::supervise::{Line, Process};

/// How long a tenant may take to set up its context, and to end.
const PATIENCE: Duration = Duration::from_secs(12);

/// A tenant on stage.
#[derive(Debug)]
pub(crate) struct Player {
    /// What it was promised.
    pub(crate) tenant: Tenant,
    /// Its process.
    pub(crate) process: Process,
    /// Its context is there and its first kernel has run.
    pub(crate) started: bool,
    /// Its last progress, best effort.
    pub(crate) be: BeCounts,
    /// Its last progress, latency-critical.
    pub(crate) lc: LcCounts,
    /// Its last words.
    pub(crate) ending: Option<Record>,
}

impl Player {
    /// Allocations that it was refused so far.
    pub(crate) fn denied(&self) -> u64 {
        self.be.denied
    }

    /// Kernels it says it has launched, and those it says have ended: a claim that its buffer has to prove.
    pub(crate) fn claimed_kernels(&self) -> (u64, u64) {
        match self.tenant.class {
            Class::BestEffort => (self.be.launches, self.be.completed),
            Class::LatencyCritical => (self.lc.launches, self.lc.launches),
        }
    }

    /// What is known of it after its end.
    pub(crate) fn outcome(&self, seen: Seen) -> Outcome {
        let (buffer, errors) = match &self.ending {
            Some(Record::BeFinal { buffer, errors, .. } | Record::LcFinal { buffer, errors, .. }) => {
                (Some(buffer.clone()), errors.clone())
            }
            _ => (None, vec![format!("it ended without a result{}", self.process.log_tail())]),
        };
        Outcome { seen, denied: self.denied(), buffer, errors }
    }

    /// Latency before its mark, if it is latency-critical and was marked.
    pub(crate) fn latency_before_mark(&self) -> Option<Quantiles> {
        match &self.ending {
            Some(Record::LcFinal { earlier_us, .. }) => earlier_us.first().copied(),
            _ => None,
        }
    }
}

/// All tenants of a run.
#[derive(Debug)]
pub(crate) struct Cast {
    /// The tenants.
    pub(crate) players: Vec<Player>,
    lines: Receiver<Line>,
    sender: Sender<Line>,
}

impl Cast {
    /// Nobody yet.
    pub(crate) fn empty() -> Self {
        let (sender, lines) = channel();
        Self { players: Vec::new(), lines, sender }
    }

    /// Starts a tenant under the hook.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(crate) fn enter(&mut self, stage: &Stage, tenant: &Tenant) -> anyhow::Result<()> {
        let process = stage.start_tenant(tenant.name, tenant.name, tenant.load(), self.sender.clone())?;
        self.players.push(Player {
            tenant: tenant.clone(),
            process,
            started: false,
            be: BeCounts::default(),
            lc: LcCounts::default(),
            ending: None,
        });
        Ok(())
    }

    /// Puts the tenants into this order.
    pub(crate) fn arrange(&mut self, order: &[Tenant]) {
        self.players.sort_by_key(|player| order.iter().position(|tenant| tenant.name == player.tenant.name));
    }

    /// Takes in what the tenants have said since the last time, and fails if one of them has ended.
    ///
    /// # Errors
    /// If a tenant ended early or said what is no record.
    pub(crate) fn listen(&mut self) -> anyhow::Result<()> {
        self.hear()?;
        for player in &mut self.players {
            player.process.check_running()?;
        }
        Ok(())
    }

    /// Listens until everybody has started; `meanwhile` is called often and may fail.
    ///
    /// # Errors
    /// Those of `meanwhile`, and if somebody does not start.
    pub(crate) fn wait_for_start(
        &mut self,
        mut meanwhile: impl FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.listen()?;
            let Some(late) = self.players.iter().find(|player| !player.started) else { return Ok(()) };
            if Instant::now() >= deadline {
                bail!(
                    "{} did not get as far as its first kernel{}",
                    late.tenant.name,
                    late.process.log_tail()
                );
            }
            meanwhile()?;
        }
    }

    /// Lets everybody end in their own way and takes in their last words.
    ///
    /// # Errors
    /// Those of `meanwhile`; a tenant that has to be killed is no error here but has no result.
    pub(crate) fn leave(&mut self, mut meanwhile: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<()> {
        for player in &mut self.players {
            player.process.close_input();
        }
        let deadline = Instant::now() + PATIENCE;
        while self.players.iter().any(|player| player.ending.is_none()) && Instant::now() < deadline {
            self.hear()?;
            let mut all_gone = true;
            for player in &mut self.players {
                all_gone &= player.process.check_running().is_err();
            }
            if all_gone {
                // What they said last may still be on its way through the reading threads.
                while let Ok(line) = self.lines.recv_timeout(Duration::from_millis(200)) {
                    self.take(&line)?;
                }
                break;
            }
            meanwhile()?;
        }
        for player in &mut self.players {
            player.process.wait(deadline)?;
            player.process.kill();
        }
        Ok(())
    }

    fn hear(&mut self) -> anyhow::Result<()> {
        while let Ok(line) = self.lines.try_recv() {
            self.take(&line)?;
        }
        Ok(())
    }

    fn take(&mut self, line: &Line) -> anyhow::Result<()> {
        let Some(player) = self.players.iter_mut().find(|player| player.process.name() == line.from) else {
            return Ok(());
        };
        let record =
            Record::parse(&line.text).with_context(|| format!("{} said: {}", line.from, line.text))?;
        match &record {
            Record::Started { .. } => player.started = true,
            Record::BeProgress(counts) => player.be = counts.clone(),
            Record::LcProgress(counts) => player.lc = counts.clone(),
            Record::BeFinal { counts, .. } => player.be = counts.clone(),
            Record::LcFinal { counts, .. } => player.lc = counts.clone(),
        }
        if matches!(record, Record::BeFinal { .. } | Record::LcFinal { .. }) {
            player.ending = Some(record);
        }
        Ok(())
    }
}
