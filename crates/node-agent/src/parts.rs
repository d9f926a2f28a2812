//! The parts of the agent that run at once, and how they end.

use std::time::Duration;

use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// How long everything may take to end; kubelet's default patience is 30 s.
const END_WITHIN: Duration = Duration::from_secs(15);

type Ended = (&'static str, anyhow::Result<()>);

/// The parts, by whether they put something in order when they end.
#[derive(Debug)]
pub(crate) struct Parts {
    /// Tells those that put something in order to end.
    pub(crate) stop: CancellationToken,
    orderly: JoinSet<Ended>,
    endless: JoinSet<Ended>,
}

impl Parts {
    pub(crate) fn new(stop: CancellationToken) -> Self {
        Self { stop, orderly: JoinSet::new(), endless: JoinSet::new() }
    }

    /// A part that ends by itself once `stop` is cancelled.
    pub(crate) fn orderly<E: Into<anyhow::Error>>(
        &mut self,
        name: &'static str,
        part: impl Future<Output = Result<(), E>> + Send + 'static,
    ) {
        self.orderly.spawn(async move { (name, part.await.map_err(Into::into)) });
    }

    /// A part that never ends, and may be dropped at any moment.
    pub(crate) fn endless(&mut self, name: &'static str, part: impl Future<Output = ()> + Send + 'static) {
        self.endless.spawn(async move {
            part.await;
            (name, Err(anyhow::anyhow!("it has nothing to work on any more")))
        });
    }

    /// Waits for `stop`, or for a part that ends before.
    ///
    /// # Errors
    /// Which part ended, and why.
    pub(crate) async fn wait(&mut self) -> anyhow::Result<()> {
        let (stop, orderly, endless) = (&self.stop, &mut self.orderly, &mut self.endless);
        let ended = tokio::select! {
            // In this order: parts that end because they were told to are no failure.
            biased;
            () = stop.cancelled() => return Ok(()),
            Some(ended) = orderly.join_next() => ended,
            Some(ended) = endless.join_next() => ended,
        };
        Err(explain(ended))
    }

    /// Ends all of them.
    pub(crate) async fn end(mut self) {
        self.stop.cancel();
        self.endless.abort_all();
        let all = async {
            while let Some(ended) = self.orderly.join_next().await {
                if !matches!(ended, Ok((_, Ok(())))) {
                    warn!(why = format!("{:#}", explain(ended)), "a part of the agent did not end well");
                }
            }
        };
        if tokio::time::timeout(END_WITHIN, all).await.is_err() {
            warn!(after_s = END_WITHIN.as_secs(), "not everything ended in time");
        }
    }
}

fn explain(ended: Result<Ended, JoinError>) -> anyhow::Error {
    match ended {
        Ok((part, Ok(()))) => anyhow::anyhow!("{part}: it ended although nobody said so"),
        Ok((part, Err(why))) => why.context(part),
        Err(why) => anyhow::Error::new(why).context("a part of the agent failed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;

    #[tokio::test]
    async fn a_part_that_fails_is_named_with_its_reason() {
        let mut parts = Parts::new(CancellationToken::new());
        parts.endless("sleeper", pending());
        parts.orderly("plugin", async { Err(std::io::Error::other("the folder is gone")) });
        let said = format!("{:#}", parts.wait().await.unwrap_err());
        assert_eq!(said, "plugin: the folder is gone");
    }

    #[tokio::test]
    async fn a_part_that_ends_unasked_is_a_failure_too() {
        let mut parts = Parts::new(CancellationToken::new());
        parts.endless("pods", async {});
        assert!(format!("{:#}", parts.wait().await.unwrap_err()).starts_with("pods: "));
    }

    #[tokio::test]
    async fn at_the_end_those_that_have_something_to_put_in_order_are_waited_for() {
        let stop = CancellationToken::new();
        let mut parts = Parts::new(stop.clone());
        let (tidied, is_tidied) = tokio::sync::oneshot::channel();
        parts.orderly("managers", async move {
            stop.cancelled().await;
            tokio::task::yield_now().await;
            let _ = tidied.send(());
            Ok::<(), std::io::Error>(())
        });
        parts.endless("pods", pending());
        parts.end().await;
        assert!(is_tidied.await.is_ok());
    }
}
