//! Keeps a plugin connected while the runtime starts, stops and restarts.

use std::path::Path;
use std::time::Duration;

use sluice_rate_limiter::Backoff;
use tokio::net::UnixStream;
use tracing::{info, warn};

use super::session::{self, Plugin, SessionError};

/// A restarted runtime creates containers at once, so the plugin has to be there soon.
const FIRST_DELAY: Duration = Duration::from_millis(20);
const LONGEST_DELAY: Duration = Duration::from_secs(1);
/// Longest delay while the socket has never been there: most such runtimes have no NRI.
const LONGEST_DELAY_WITHOUT_SOCKET: Duration = Duration::from_secs(10);

/// Connects for ever. `ended` receives why an attempt or a connection ended.
pub(super) async fn keep_connected(socket: &Path, plugin: &mut impl Plugin, mut ended: impl FnMut(&str)) {
    let mut backoff = Backoff::new(FIRST_DELAY, LONGEST_DELAY_WITHOUT_SOCKET);
    let mut longest = LONGEST_DELAY_WITHOUT_SOCKET;
    let mut last = String::new();
    loop {
        let why = match UnixStream::connect(socket).await {
            Ok(stream) => {
                info!(socket = %socket.display(), "connected to the runtime's NRI");
                longest = LONGEST_DELAY;
                let (why, was_registered) = session::serve(stream, plugin).await;
                if was_registered {
                    backoff.succeeded();
                }
                why
            }
            Err(why) => SessionError::Connect(why),
        };
        let why = format!("{}: {why}", socket.display());
        // An absent runtime is tried for ever: a reason is logged once.
        if why != last {
            warn!(plugin = plugin.name(), "not registered with the runtime's NRI: {why}");
        }
        ended(&why);
        last = why;
        tokio::time::sleep(backoff.next_delay().min(longest)).await;
    }
}

#[cfg(test)]
mod tests;
