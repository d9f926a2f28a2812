//! For tests: a driver that looks handles up slowly, and ends the process at the handle of a destroyed object, as a
//! real one may crash.

use super::table::Kind;
use std::sync::OnceLock;
use std::time::Duration;

/// Microseconds before each handle is looked up. If unset, the driver answers at once and refuses handles of
/// destroyed objects.
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
