use super::*;
use clap::CommandFactory;

#[test]
fn the_command_line_is_consistent() {
    Arguments::command().debug_assert();
}

/// SIGHUP would end a process that does not handle it, and with it this test program.
#[cfg(feature = "cluster")]
#[test]
fn daemon_serves_on_after_sighup_and_ends_by_sigterm() {
    use nix::sys::signal::{Signal, raise};
    use std::time::Duration;

    let served = serve(|stop| async move {
        raise(Signal::SIGHUP)?;
        let ended = tokio::time::timeout(Duration::from_millis(200), stop.cancelled()).await;
        assert!(ended.is_err(), "SIGHUP ended the daemon");
        raise(Signal::SIGTERM)?;
        stop.cancelled().await;
        Ok(())
    });
    served.unwrap();
}
