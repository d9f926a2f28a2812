//! Use of a GPU by process, in the forms beside [`super::usage`]: earlier versions, MPS, details, and utilisation.

use super::session::{ledger, socket};
use super::usage::listed;
use super::{Answer, Error, NO_INSTANCE, get, number, nvml, put};
use crate::border::Ptr;
use sluice_driver_api::nvml::*;
use sluice_driver_api::types::{c_uint, c_ulonglong, c_void};
use sluice_sim::client;

/// The driver's sampling period is between a sixth of a second and one second.
const PERIOD_NS: u64 = 1_000_000_000;

/// Writes a list and its length, if there is room.
pub(super) fn put_list<T: Copy>(count: Ptr<c_uint>, out: Ptr<T>, entries: &[T]) -> Answer {
    let room = get(count)? as usize;
    put(count, number(entries.len()))?;
    if room < entries.len() {
        return Err(Error::InsufficientSize);
    }
    entries.iter().enumerate().try_for_each(|(index, entry)| put(out.at(index), *entry))
}

fn put_none<T>(device: Ptr<c_void>, count: Ptr<c_uint>, _out: Ptr<T>) -> Answer {
    socket(device)?;
    put(count, 0)
}

/// Time of the samples in microseconds, and each process that ran since then with its part of the time, in percent.
fn utilization(device: Ptr<c_void>) -> Result<(c_ulonglong, Vec<(c_uint, c_uint)>), Error> {
    let now = ledger(device)?.gpu.now_ns;
    let window = client::window(&socket(device)?.1, now.saturating_sub(PERIOD_NS), now);
    let ran = window.map_err(|_| Error::GpuIsLost)?.gpu_ns.into_iter().filter(|(_, ns)| *ns > 0);
    let percent = |ns: u64| c_uint::try_from((ns * 100).div_ceil(PERIOD_NS)).unwrap_or(100);
    let samples: Vec<_> = ran.map(|(pid, ns)| (pid.cast_unsigned(), percent(ns))).collect();
    if samples.is_empty() { Err(Error::NotFound) } else { Ok((now / 1000, samples)) }
}

nvml! { once initialised:
    fn nvmlDeviceGetComputeRunningProcesses(device: *mut c_void, count: *mut c_uint, out: *mut nvmlProcessInfo_v1_t) {
        let entry = |(pid, used)| nvmlProcessInfo_v1_t { pid, usedGpuMemory: used };
        put_list(count, out, &listed(device)?.into_iter().map(entry).collect::<Vec<_>>())
    }

    fn nvmlDeviceGetGraphicsRunningProcesses(device: *mut c_void, count: *mut c_uint, out: *mut nvmlProcessInfo_v1_t) {
        put_none(device, count, out)
    }

    fn nvmlDeviceGetGraphicsRunningProcesses_v2(device: *mut c_void, count: *mut c_uint, out: *mut nvmlProcessInfo_v2_t) {
        put_none(device, count, out)
    }

    fn nvmlDeviceGetMPSComputeRunningProcesses(device: *mut c_void, count: *mut c_uint, out: *mut nvmlProcessInfo_v1_t) {
        put_none(device, count, out)
    }

    fn nvmlDeviceGetMPSComputeRunningProcesses_v2(device: *mut c_void, count: *mut c_uint, out: *mut nvmlProcessInfo_v2_t) {
        put_none(device, count, out)
    }

    fn nvmlDeviceGetMPSComputeRunningProcesses_v3(device: *mut c_void, count: *mut c_uint, out: *mut nvmlProcessInfo_v2_t) {
        put_none(device, count, out)
    }

    fn nvmlDeviceGetRunningProcessDetailList(device: *mut c_void, list: *mut nvmlProcessDetailList_t) {
        let mut asked = get(list)?;
        if asked.version != struct_version::<nvmlProcessDetailList_t>(1) {
            return Err(Error::ArgumentVersionMismatch);
        }
        let entry = |(pid, used)| nvmlProcessDetail_v1_t {
            pid,
            usedGpuMemory: used,
            gpuInstanceId: NO_INSTANCE,
            computeInstanceId: NO_INSTANCE,
            usedGpuCcProtectedMemory: 0,
        };
        let entries: Vec<_> = listed(device)?.into_iter().map(entry).collect();
        let room = asked.numProcArrayEntries as usize;
        asked.numProcArrayEntries = number(entries.len());
        put(list, asked)?;
        if room < entries.len() {
            return Err(Error::InsufficientSize);
        }
        let out: Ptr<nvmlProcessDetail_v1_t> = Ptr::to_address(asked.procArray.expose_provenance());
        entries.iter().enumerate().try_for_each(|(index, entry)| put(out.at(index), *entry))
    }

    fn nvmlDeviceGetProcessUtilization(
        device: *mut c_void,
        out: *mut nvmlProcessUtilizationSample_t,
        count: *mut c_uint,
        since: c_ulonglong,
    ) {
        let (time, samples) = utilization(device)?;
        if since >= time {
            return Err(Error::NotFound);
        }
        let entry = |(pid, percent)| nvmlProcessUtilizationSample_t {
            pid,
            timeStamp: time,
            smUtil: percent,
            ..Default::default()
        };
        put_list(count, out, &samples.into_iter().map(entry).collect::<Vec<_>>())
    }

    fn nvmlDeviceGetProcessesUtilizationInfo(device: *mut c_void, info: *mut nvmlProcessesUtilizationInfo_t) {
        let mut asked = get(info)?;
        if asked.version != struct_version::<nvmlProcessesUtilizationInfo_t>(1) {
            return Err(Error::ArgumentVersionMismatch);
        }
        let (time, samples) = utilization(device)?;
        if asked.lastSeenTimeStamp >= time {
            return Err(Error::NotFound);
        }
        let room = asked.processSamplesCount as usize;
        asked.processSamplesCount = number(samples.len());
        put(info, asked)?;
        if room < samples.len() {
            return Err(Error::InsufficientSize);
        }
        let out: Ptr<nvmlProcessUtilizationInfo_v1_t> = Ptr::to_address(asked.procUtilArray.expose_provenance());
        samples.into_iter().enumerate().try_for_each(|(index, (pid, percent))| {
            let entry = nvmlProcessUtilizationInfo_v1_t { timeStamp: time, pid, smUtil: percent, ..Default::default() };
            put(out.at(index), entry)
        })
    }
}
