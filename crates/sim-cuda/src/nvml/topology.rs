//! Where a GPU is: on the PCI bus, near which memory, behind which NVLinks.

use super::session::info;
use super::{Answer, Error, nvml, put};
use crate::border::Ptr;
use sluice_driver_api::types::{c_char, c_uint, c_ulong, c_void};
use sluice_sim::identity::PciAddress;

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
        *char = byte.cast_signed();
    }
    chars
}

fn put_place(out: Ptr<Pci>, place: PciAddress) -> Answer {
    let PciAddress { domain, bus, device } = place;
    // NVML's own texts are in capitals, and the domain has eight digits in the newer one.
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

/// Where a link leads; none if nothing is at its other end.
fn end_of(device: Ptr<c_void>, link: c_uint) -> Result<Option<PciAddress>, Error> {
    let links = info(device)?.links;
    if links.is_empty() {
        return Err(Error::NotSupported);
    }
    if link >= LINKS {
        return Err(Error::InvalidArgument);
    }
    Ok(links.get(link as usize).copied())
}

nvml! { once initialised:
    fn nvmlDeviceGetPciInfo_v3(device: *mut c_void, out: *mut Pci) {
        put_place(out, info(device)?.pci)
    }

    fn nvmlDeviceGetNvLinkState(device: *mut c_void, link: c_uint, out: *mut c_uint) {
        put(out, end_of(device, link)?.is_some().into())
    }

    fn nvmlDeviceGetNvLinkRemotePciInfo_v2(device: *mut c_void, link: c_uint, out: *mut Pci) {
        put_place(out, end_of(device, link)?.ok_or(Error::InvalidArgument)?)
    }

    fn nvmlDeviceGetMemoryAffinity(device: *mut c_void, size: c_uint, out: *mut c_ulong, scope: c_uint) {
        let node = info(device)?.numa.ok_or(Error::NotSupported)?;
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
        put(out, info(device)?.numa.ok_or(Error::NotSupported)?)
    }
}
