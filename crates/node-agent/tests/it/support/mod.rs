//! Shared by the tests of the device plugin: a fake kubelet, and a node for it.

pub mod kubelet;
pub mod node;
pub mod runtime;

use std::time::Duration;

/// Only ends a test that hangs.
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future)
        .await
        .unwrap_or_else(|_| panic!("{what}: not within 20 s"))
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
