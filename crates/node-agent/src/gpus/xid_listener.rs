//! The thread that waits for Xid events of the driver and sends them to the watcher.

use std::ops::ControlFlow;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::driver::{DriverEvent, GpuDriver};

/// Delay after the driver refused to deliver events.
const LISTEN_RETRY: Duration = Duration::from_secs(1);

/// A message of the thread that waits for Xids.
pub(super) enum ListenerMessage {
    Xid {
        uuid: Option<String>,
        code: u64,
    },
    Listening,
    /// Waiting for events failed. A scan may find the reason.
    Failed,
}

/// Waits for Xids until `stop` and sends them. Runs on a thread of its own.
pub(super) fn listen(
    gpus: &dyn GpuDriver,
    sender: &mpsc::UnboundedSender<ListenerMessage>,
    stop: &CancellationToken,
) {
    let is_over = || stop.is_cancelled() || sender.is_closed();
    let mut logged = None;
    while !is_over() {
        let result = gpus.listen(&mut |event| {
            let message = match event {
                DriverEvent::Listening => Some(ListenerMessage::Listening),
                DriverEvent::Xid { uuid, code } => Some(ListenerMessage::Xid { uuid, code }),
                DriverEvent::Quiet => None,
            };
            if let Some(message) = message {
                // This fails only if the watcher is gone, which the loop condition detects.
                let _ = sender.send(message);
            }
            if is_over() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        match result {
            Ok(()) => logged = None,
            Err(why) => {
                let _ = sender.send(ListenerMessage::Failed);
                if logged.as_ref() != Some(&why) {
                    tracing::warn!("cannot wait for Xid events: {why}; retrying every {LISTEN_RETRY:?}");
                    logged = Some(why);
                }
                std::thread::sleep(LISTEN_RETRY);
            }
        }
    }
}
