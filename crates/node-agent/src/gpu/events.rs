//! Xid events by NVML.

use std::ops::ControlFlow;

use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{EventSet, Nvml};

use super::source::{NoDriver, Report};

/// After so long without an event, it is asked whether to go on.
const QUIET_MS: u32 = 1_000;
/// What NVML says for an Xid that it cannot name.
const UNKNOWN_XID: u64 = 999;

/// Registers for all GPUs that can report and tells what they report.
pub(super) fn listen(nvml: &Nvml, hear: &mut dyn FnMut(Report) -> ControlFlow<()>) -> Result<(), NoDriver> {
    let (set, uuids) = register(nvml).map_err(|error| NoDriver(format!("no Xid events: {error}")))?;
    if uuids.iter().all(Option::is_none) {
        return Err(NoDriver("none of its GPUs reports Xid events".into()));
    }
    if hear(Report::Listening).is_break() {
        return Ok(());
    }
    loop {
        let report = match set.wait(QUIET_MS) {
            Ok(event) => match event.event_data {
                Some(xid) => {
                    // A GPU that has fallen off may no longer say who it is; its index is the library's own knowledge.
                    let by_index =
                        || event.device.index().ok().and_then(|index| uuids.get(index as usize)?.clone());
                    let uuid = event.device.uuid().ok().or_else(by_index);
                    let code = match xid {
                        XidError::Value(code) => code,
                        XidError::Unknown => UNKNOWN_XID,
                    };
                    Report::Xid { uuid, code }
                }
                None => Report::Quiet,
            },
            Err(NvmlError::Timeout) => Report::Quiet,
            Err(error) => return Err(NoDriver(format!("no more Xid events: {error}"))),
        };
        if hear(report).is_break() {
            return Ok(());
        }
    }
}

/// A set with the events of every GPU that has them, and the UUIDs of those by index.
fn register(nvml: &Nvml) -> Result<(EventSet<'_>, Vec<Option<String>>), NvmlError> {
    let mut deaf = Vec::new();
    // A registration that fails takes the set with it, so those that cannot register are found one by one.
    'anew: loop {
        let mut set = nvml.create_event_set()?;
        let mut uuids = Vec::new();
        for index in 0..nvml.device_count()? {
            uuids.push(None);
            let Ok(device) = nvml.device_by_index(index) else { continue };
            let has_xids = |types: EventTypes| types.contains(EventTypes::CRITICAL_XID_ERROR);
            if deaf.contains(&index) || !device.supported_event_types().is_ok_and(has_xids) {
                continue;
            }
            match device.register_events(EventTypes::CRITICAL_XID_ERROR, set) {
                Ok(with_this) => set = with_this,
                Err(error) => {
                    tracing::warn!(
                        "GPU {index} cannot report Xid events, only polling is left for it: {error}"
                    );
                    deaf.push(index);
                    continue 'anew;
                }
            }
            if let (Some(last), Ok(uuid)) = (uuids.last_mut(), device.uuid()) {
                *last = Some(uuid);
            }
        }
        return Ok((set, uuids));
    }
}
