//! Why a call of the program about hold kernels has no effect.

use sluice_hook_core::hold_kernel::HoldRefusal;
use sluice_hook_core::outcome::Bypass;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HoldError {
    /// The process or the device is not governed.
    Bypassed(Bypass),
    NotCritical,
    Capturing,
    /// The context's resources are being made; a later call may succeed.
    Preparing,
    /// The driver or the context does not support it.
    Unable,
    Refused(HoldRefusal),
}
