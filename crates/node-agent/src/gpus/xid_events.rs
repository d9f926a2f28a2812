//! Xid events: from NVML to the driver's interface, and on a thread of their own from there to the watcher.

use std::ops::ControlFlow;
use std::time::Duration;

use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{EventSet, Nvml};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::driver::{DriverEvent, DriverUnavailable, GpuDriver};

/// After this long without an event, [`DriverEvent::Quiet`] is delivered.
const QUIET_MS: u32 = 1_000;
/// Delay after the driver refused to deliver events.
const LISTEN_RETRY: Duration = Duration::from_secs(1);
/// NVML's value for an Xid that it cannot name.
const UNKNOWN_XID: u64 = 999;

/// Registers for the events of all GPUs that have any, and delivers them.
pub(super) fn listen(
    nvml: &Nvml,
    on_event: &mut dyn FnMut(DriverEvent) -> ControlFlow<()>,
) -> Result<(), DriverUnavailable> {
    let (set, uuids) =
        register(nvml).map_err(|error| DriverUnavailable(format!("no Xid events: {error}")))?;
    if uuids.iter().all(Option::is_none) {
        return Err(DriverUnavailable("none of its GPUs reports Xid events".into()));
    }
    if on_event(DriverEvent::Listening).is_break() {
        return Ok(());
    }
    loop {
        let report = match set.wait(QUIET_MS) {
            Ok(event) => match event.event_data {
                Some(xid) => {
                    // A GPU that has fallen off the bus may no longer report its UUID. Its index comes from the
                    // library itself.
                    let by_index =
                        || event.device.index().ok().and_then(|index| uuids.get(index as usize)?.clone());
                    let uuid = event.device.uuid().ok().or_else(by_index);
                    let code = match xid {
                        XidError::Value(code) => code,
                        XidError::Unknown => UNKNOWN_XID,
                    };
                    DriverEvent::Xid { uuid, code }
                }
                None => DriverEvent::Quiet,
            },
            Err(NvmlError::Timeout) => DriverEvent::Quiet,
            Err(error) => return Err(DriverUnavailable(format!("no more Xid events: {error}"))),
        };
        if on_event(report).is_break() {
            return Ok(());
        }
    }
}

/// An event set for every GPU that has events, and their UUIDs by index.
fn register(nvml: &Nvml) -> Result<(EventSet<'_>, Vec<Option<String>>), NvmlError> {
    let mut without_events = Vec::new();
    // A failed registration consumes the set. So the GPUs that cannot register are found one by one.
    'retry: loop {
        let mut set = nvml.create_event_set()?;
        let mut uuids = Vec::new();
        for index in 0..nvml.device_count()? {
            uuids.push(None);
            let Ok(device) = nvml.device_by_index(index) else { continue };
            let has_xids = |types: EventTypes| types.contains(EventTypes::CRITICAL_XID_ERROR);
            if without_events.contains(&index) || !device.supported_event_types().is_ok_and(has_xids) {
                continue;
            }
            match device.register_events(EventTypes::CRITICAL_XID_ERROR, set) {
                Ok(with_this) => set = with_this,
                Err(error) => {
                    tracing::warn!(
                        "GPU {index} cannot report Xid events, only scans find its faults: {error}"
                    );
                    without_events.push(index);
                    continue 'retry;
                }
            }
            if let (Some(last), Ok(uuid)) = (uuids.last_mut(), device.uuid()) {
                *last = Some(uuid);
            }
        }
        return Ok((set, uuids));
    }
}

/// A message to the watcher; an error if waiting for events failed. A scan may find the reason.
pub(super) type ListenerMessage = Result<DriverEvent, DriverUnavailable>;

/// Waits for events of the driver until `stop` and sends them, except quiet times. Runs on a thread of its own.
pub(super) fn forward(
    gpus: &dyn GpuDriver,
    sender: &mpsc::UnboundedSender<ListenerMessage>,
    stop: &CancellationToken,
) {
    let is_over = || stop.is_cancelled() || sender.is_closed();
    let mut logged = None;
    while !is_over() {
        let result = gpus.listen(&mut |event| {
            if event != DriverEvent::Quiet {
                // This fails only if the watcher is gone, which the loop condition detects.
                let _ = sender.send(Ok(event));
            }
            if is_over() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        match result {
            Ok(()) => logged = None,
            Err(why) => {
                let _ = sender.send(Err(why.clone()));
                if logged.as_ref() != Some(&why) {
                    tracing::warn!("cannot wait for Xid events: {why}; retrying every {LISTEN_RETRY:?}");
                    logged = Some(why);
                }
                std::thread::sleep(LISTEN_RETRY);
            }
        }
    }
}
