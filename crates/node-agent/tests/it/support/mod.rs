//! Shared by the tests of the device plugin: a fake kubelet, and a node for it.

pub mod claims;
pub mod kubelet;
pub mod node;
pub mod runtime;

use std::time::Duration;

/// The limit of each wait. It decides no outcome: it only ends a test that hangs.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Waits for the future, [`LONGEST_WAIT`] at most.
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONGEST_WAIT, future)
        .await
        .unwrap_or_else(|_| panic!("{what}: not within {LONGEST_WAIT:?}"))
}

/// Yields to other tasks until the condition holds.
pub async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let yielding = async {
        while !is_so() {
            tokio::task::yield_now().await;
        }
    };
    soon(what, yielding).await;
}
