//! Devices: identity, PCI address, NVLinks, memory affinity, recovery action.

use super::mig::{gpus, siblings, whole_gpu};
use super::session::{FIRST_HANDLE, info, info_at, socket, sockets};
use super::{Answer, Error, get, number, nvml, put, put_text};
use crate::border::Ptr;
use sluice_driver_api::types::{c_char, c_int, c_uint, c_ulong, c_ulonglong, c_void};
use sluice_sim::client::GpuInfo;
use sluice_sim::identity::PciAddress;

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

/// `nvmlPciInfo_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Pci {
    bus_id_legacy: [c_char; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    device_id: c_uint,
    subsystem_id: c_uint,
    bus_id: [c_char; 32],
}

/// Links that a GPU may have (`NVML_NVLINK_MAX_LINKS`).
const LINKS: c_uint = 18;
/// `NVML_AFFINITY_SCOPE_SOCKET`, the larger of the two scopes.
const LARGEST_SCOPE: c_uint = 1;

fn chars<const N: usize>(text: &str) -> [c_char; N] {
    let mut chars = [0; N];
    for (char, byte) in chars.iter_mut().take(N - 1).zip(text.bytes()) {
        *char = c_char::from_ne_bytes([byte]);
    }
    chars
}

fn put_pci(out: Ptr<Pci>, address: PciAddress) -> Answer {
    let PciAddress { domain, bus, device } = address;
    // NVML writes both texts in capital letters. The domain has eight digits in the newer one.
    let pci = Pci {
        bus_id_legacy: chars(&format!("{domain:04X}:{bus:02X}:{device:02X}.0")),
        domain,
        bus: bus.into(),
        device: device.into(),
        device_id: 0x2335_10de,
        subsystem_id: 0x18be_10de,
        bus_id: chars(&format!("{domain:08X}:{bus:02X}:{device:02X}.0")),
    };
    put(out, pci)
}

/// The PCI address at the other end of a link; `None` if the link is not connected.
fn remote_end(device: Ptr<c_void>, link: c_uint) -> Result<Option<PciAddress>, Error> {
    let links = whole_gpu(device)?.links;
    if links.is_empty() {
        return Err(Error::NotSupported);
    }
    if link >= LINKS {
        return Err(Error::InvalidArgument);
    }
    Ok(links.get(link as usize).copied())
}

pub(super) fn put_handle(ordinal: usize, out: Ptr<*mut c_void>) -> Answer {
    out.write_handle(FIRST_HANDLE + ordinal).map_err(|_| Error::InvalidArgument)
}

/// Writes the handle of the first device whose properties fulfil a condition.
fn put_handle_if(condition: impl Fn(GpuInfo) -> bool, out: Ptr<*mut c_void>) -> Answer {
    let ordinal = sockets().iter().position(|socket| info_at(socket).is_ok_and(&condition));
    put_handle(ordinal.ok_or(Error::NotFound)?, out)
}

nvml! { once initialised:
    fn nvmlDeviceGetCount_v2(out: *mut c_uint) {
        put(out, number(gpus().len()))
    }

    fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, out: *mut *mut c_void) {
        let (ordinal, socket) = gpus().into_iter().nth(index as usize).ok_or(Error::InvalidArgument)?;
        info_at(&socket)?;
        put_handle(ordinal, out)
    }

    fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, out: *mut *mut c_void) {
        let wanted = uuid.text().map_err(|_| Error::InvalidArgument)?;
        put_handle_if(|info| info.uuid_text() == wanted, out)
    }

    fn nvmlDeviceGetHandleByPciBusId_v2(address: *const c_char, out: *mut *mut c_void) {
        let wanted = address.text().ok().and_then(|text| text.parse().ok()).ok_or(Error::InvalidArgument)?;
        put_handle_if(|info| info.pci == wanted && info.instance.is_none(), out)
    }

    fn nvmlDeviceGetIndex(device: *mut c_void, out: *mut c_uint) {
        let ordinal = socket(device)?.0;
        let index = siblings(ordinal).iter().position(|sibling| *sibling == ordinal);
        put(out, number(index.ok_or(Error::InvalidArgument)?))
    }

    fn nvmlDeviceGetMinorNumber(device: *mut c_void, out: *mut c_uint) {
        put(out, number(socket(device)?.0))
    }

    fn nvmlDeviceGetName(device: *mut c_void, out: *mut c_char, size: c_uint) {
        put_text(out, &info(device)?.name, size)
    }

    fn nvmlDeviceGetUUID(device: *mut c_void, out: *mut c_char, size: c_uint) {
        put_text(out, &info(device)?.uuid_text(), size)
    }

    fn nvmlDeviceGetCudaComputeCapability(device: *mut c_void, major: *mut c_int, minor: *mut c_int) {
        socket(device)?;
        put(major, 9)?;
        put(minor, 0)
    }

    fn nvmlDeviceGetPciInfo_v3(device: *mut c_void, out: *mut Pci) {
        put_pci(out, whole_gpu(device)?.pci)
    }

    fn nvmlDeviceGetNvLinkState(device: *mut c_void, link: c_uint, out: *mut c_uint) {
        put(out, remote_end(device, link)?.is_some().into())
    }

    fn nvmlDeviceGetNvLinkRemotePciInfo_v2(device: *mut c_void, link: c_uint, out: *mut Pci) {
        put_pci(out, remote_end(device, link)?.ok_or(Error::InvalidArgument)?)
    }

    fn nvmlDeviceGetMemoryAffinity(device: *mut c_void, size: c_uint, out: *mut c_ulong, scope: c_uint) {
        let node = whole_gpu(device)?.numa.ok_or(Error::NotSupported)?;
        if size == 0 || scope > LARGEST_SCOPE {
            return Err(Error::InvalidArgument);
        }
        for word in 0..size {
            let bit = if node / c_ulong::BITS == word { 1 << (node % c_ulong::BITS) } else { 0 };
            put(out.at(word as usize), bit)?;
        }
        Ok(())
    }

    fn nvmlDeviceGetNumaNodeId(device: *mut c_void, out: *mut c_uint) {
        put(out, whole_gpu(device)?.numa.ok_or(Error::NotSupported)?)
    }

    fn nvmlDeviceGetFieldValues(device: *mut c_void, count: c_int, fields: *mut Field) {
        let count = usize::try_from(count).ok().filter(|count| *count > 0).ok_or(Error::InvalidArgument)?;
        let action = whole_gpu(device)?.fault.map_or(0, |fault| fault.recovery_action());
        for index in 0..count {
            let entry: Ptr<Field> = fields.at(index);
            let requested = get(entry)?;
            let field = match requested.id {
                RECOVERY_ACTION => Field { kind: UNSIGNED_INT, status: 0, value: action.into(), ..requested },
                _ => Field { status: Error::NotSupported as c_uint, ..requested },
            };
            put(entry, field)?;
        }
        Ok(())
    }
}
