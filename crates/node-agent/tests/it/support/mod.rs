//! What the tests of the plugin share: a kubelet of their own, and a node to put it on.

pub mod kubelet;
pub mod node;

use std::time::Duration;

/// Only ends a test that hangs; nothing waits for it.
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future)
        .await
        .unwrap_or_else(|_| panic!("{what}: not within 20 s"))
}

/// Lets the others run until this is so.
pub async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let yielding = async {
        while !is_so() {
            tokio::task::yield_now().await;
        }
    };
    soon(what, yielding).await;
}
