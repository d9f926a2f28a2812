//! The concurrent tasks of the agent, and how they end.

use std::time::Duration;

use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// How long all tasks together may take to end. Kubelet's default grace period is 30 s.
const END_WITHIN: Duration = Duration::from_secs(15);

/// Replaces the value of a `watch` channel; `false` if it is the same, so that receivers are not woken.
pub(crate) fn replace_if_new<T: PartialEq>(old: &mut T, new: T) -> bool {
    let is_new = *old != new;
    *old = new;
    is_new
}

type Ended = (&'static str, anyhow::Result<()>);

/// The tasks, by whether they have to clean up when they end.
#[derive(Debug)]
pub(crate) struct AgentTasks {
    /// Tells graceful tasks to end.
    pub(crate) stop: CancellationToken,
    graceful: JoinSet<Ended>,
    abortable: JoinSet<Ended>,
}

impl AgentTasks {
    pub(crate) fn new(stop: CancellationToken) -> Self {
        Self { stop, graceful: JoinSet::new(), abortable: JoinSet::new() }
    }

    /// Spawns a task that ends by itself once `stop` is cancelled.
    pub(crate) fn spawn_graceful<E: Into<anyhow::Error>>(
        &mut self,
        name: &'static str,
        task: impl Future<Output = Result<(), E>> + Send + 'static,
    ) {
        self.graceful.spawn(async move { (name, task.await.map_err(Into::into)) });
    }

    /// Spawns a task that never ends by itself and may be dropped at any moment.
    pub(crate) fn spawn_abortable(
        &mut self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        self.abortable.spawn(async move {
            task.await;
            (name, Err(anyhow::anyhow!("its input ended")))
        });
    }

    /// Waits until `stop` is cancelled or a task ends on its own.
    ///
    /// # Errors
    /// Which task ended, and why.
    pub(crate) async fn wait(&mut self) -> anyhow::Result<()> {
        let (stop, graceful, abortable) = (&self.stop, &mut self.graceful, &mut self.abortable);
        let ended = tokio::select! {
            // In this order: a task that ends because `stop` was cancelled is no failure.
            biased;
            () = stop.cancelled() => return Ok(()),
            Some(ended) = graceful.join_next() => ended,
            Some(ended) = abortable.join_next() => ended,
        };
        Err(explain(ended))
    }

    pub(crate) async fn end(mut self) {
        self.stop.cancel();
        self.abortable.abort_all();
        let all = async {
            while let Some(ended) = self.graceful.join_next().await {
                if !matches!(ended, Ok((_, Ok(())))) {
                    warn!(why = format!("{:#}", explain(ended)), "a task of the agent failed while ending");
                }
            }
        };
        if tokio::time::timeout(END_WITHIN, all).await.is_err() {
            warn!(after_s = END_WITHIN.as_secs(), "some tasks did not end in time");
        }
    }
}

fn explain(ended: Result<Ended, JoinError>) -> anyhow::Error {
    match ended {
        Ok((task, Ok(()))) => anyhow::anyhow!("{task}: it ended without being told to"),
        Ok((task, Err(why))) => why.context(task),
        Err(why) => anyhow::Error::new(why).context("a task of the agent failed"),
    }
}

#[cfg(test)]
mod tests;
