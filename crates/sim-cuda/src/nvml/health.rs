//! Health of a GPU, and whether it is in MIG mode.

use super::session::info;
use super::{Error, get, number, nvml, put};
use crate::border::Ptr;
use sluice_driver_api::types::{c_int, c_uint, c_ulonglong, c_void};

/// `nvmlFieldValue_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Field {
    id: c_uint,
    scope: c_uint,
    timestamp: i64,
    latency_us: i64,
    kind: c_uint,
    status: c_uint,
    value: c_ulonglong,
}

/// `NVML_FI_DEV_GET_GPU_RECOVERY_ACTION`.
const RECOVERY_ACTION: c_uint = 230;
/// `NVML_VALUE_TYPE_UNSIGNED_INT`.
const UNSIGNED_INT: c_uint = 1;

nvml! { once initialised:
    fn nvmlDeviceGetFieldValues(device: *mut c_void, count: c_int, fields: *mut Field) {
        let count = usize::try_from(count).ok().filter(|count| *count > 0).ok_or(Error::InvalidArgument)?;
        let action = info(device)?.fault.map_or(0, |fault| fault.recovery_action());
        for index in 0..count {
            let place: Ptr<Field> = fields.at(index);
            let requested = get(place)?;
            let field = match requested.id {
                RECOVERY_ACTION => Field { kind: UNSIGNED_INT, status: 0, value: action.into(), ..requested },
                _ => Field { status: Error::NotSupported as c_uint, ..requested },
            };
            put(place, field)?;
        }
        Ok(())
    }

    fn nvmlDeviceGetMigMode(device: *mut c_void, current: *mut c_uint, pending: *mut c_uint) {
        let is_mig = info(device)?.is_mig;
        if !is_mig {
            return Err(Error::NotSupported);
        }
        put(current, number(is_mig.into()))?;
        put(pending, number(is_mig.into()))
    }
}
