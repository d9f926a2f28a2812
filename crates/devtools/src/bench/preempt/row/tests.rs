use super::super::measurements::{ArmSamples, Measurements};
use super::*;

/// An empty row, without hints.
pub(in super::super) fn row(be_kernel_us: u32, level: PreemptionLevel) -> Row {
    Measurements::default().row(be_kernel_us, level).with(
        false,
        &ArmSamples::default(),
        &ArmSamples::default(),
    )
}
