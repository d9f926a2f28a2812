//! For tests: a driver that takes its time, and ends the process where a real one would follow a handle of what is gone.

use super::table::Kind;
use std::sync::OnceLock;
use std::time::Duration;

/// Microseconds before each handle is looked up; unset for a driver that answers at once and refuses what is gone.
const VARIABLE: &str = "SLUICE_SIM_STRICT";

/// Lets the time pass in which another thread may destroy what the call is about; whether the driver is strict.
pub(super) fn dwell() -> bool {
    static PAUSE: OnceLock<Option<Duration>> = OnceLock::new();
    let pause = PAUSE.get_or_init(|| {
        let micros = std::env::var(VARIABLE).ok()?.parse().ok()?;
        Some(Duration::from_micros(micros))
    });
    if let Some(pause) = pause {
        std::thread::sleep(*pause);
    }
    pause.is_some()
}

/// Ends the process.
pub(super) fn crash(kind: Kind, handle: usize) -> ! {
    eprintln!("the simulated driver follows {handle:#x}, a {kind:?} that has been destroyed");
    std::process::abort()
}
