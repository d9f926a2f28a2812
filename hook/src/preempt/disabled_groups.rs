//! The channel groups that are disabled for streams at level *full*.

use std::collections::BTreeMap;
use std::sync::Mutex;

use sluice_nvrm::ioctl_observation::ComputeGroup;

#[derive(Debug, Default)]
pub(crate) struct OwnChannelGroups {
    /// By context.
    pub(super) disabled: Mutex<BTreeMap<u64, DisabledGroup>>,
}

#[derive(Debug)]
pub(super) struct DisabledGroup {
    pub(super) group: ComputeGroup,
    /// Streams on whose behalf the group is disabled. It is enabled when none is left.
    pub(super) streams: Vec<u64>,
}
