//! NVML's answers in a tenant: the limit is the size of the GPU's memory, and only the client's own processes are listed.

use std::ffi::{c_char, c_uint};

use sluice_driver_api::nvml::*;
use sluice_hook_core::memory::{MemoryAccount, visible_use};

use crate::guard::guarded;
use crate::link::MemoryConnection;
use crate::{memory_accounts, process, real_nvml};

type Account = MemoryAccount<MemoryConnection>;

/// The most entries for which the hook makes room. NVML lists some hundred processes at most.
const MAX_ENTRIES: usize = 1 << 16;

/// A structure with the use of a GPU's memory.
pub(crate) trait Memory {
    /// Total size, in bytes; `None` if the structure has a version of which the layout is not known.
    fn total(&self) -> Option<u64>;
    fn set(&mut self, total: u64, free: u64, used: u64);
}

impl Memory for nvmlMemory_t {
    fn total(&self) -> Option<u64> {
        Some(self.total)
    }

    fn set(&mut self, total: u64, free: u64, used: u64) {
        *self = Self { total, free, used };
    }
}

impl Memory for nvmlMemory_v2_t {
    fn total(&self) -> Option<u64> {
        (self.version == struct_version::<Self>(2)).then_some(self.total)
    }

    fn set(&mut self, total: u64, free: u64, used: u64) {
        // What the driver keeps for itself is no part of the limit.
        *self = Self { total, free, used, reserved: 0, ..*self };
    }
}

/// An entry that is of one process.
pub(crate) trait Entry: Copy + Default {
    fn pid(&self) -> c_uint;
}

macro_rules! entries {
    ($($kind:ident)*) => { $(
        impl Entry for $kind {
            fn pid(&self) -> c_uint {
                self.pid
            }
        }
    )* };
}
entries! { nvmlProcessInfo_v1_t nvmlProcessInfo_v2_t nvmlProcessDetail_v1_t nvmlProcessUtilizationSample_t nvmlProcessUtilizationInfo_v1_t }

/// The use of a GPU's memory: that of the client, if it has a limit.
pub(crate) fn memory<M: Memory>(
    device: nvmlDevice_t,
    memory: *mut M,
    real: impl FnOnce() -> nvmlReturn_t,
) -> nvmlReturn_t {
    let result = real();
    if result == NVML_SUCCESS {
        guarded((), || {
            // SAFETY: NVML has succeeded, so it has written the structure.
            let Some(memory) = (unsafe { memory.as_mut() }) else { return };
            let seen = memory.total().and_then(|physical| {
                let account = account_of(device)?;
                // A process that only monitors has no context whose memory a reading could show.
                let has_context = process::has_context_of(account);
                let (used, limit) = if has_context { account.usage_with_context() } else { account.usage() }?;
                visible_use(used, limit, physical)
            });
            if let Some((total, free, used)) = seen {
                memory.set(total, free, used);
            }
        });
    }
    result
}

/// A list of processes: `count` is the room in `entries` before the call and the number of entries after it. `fetch` calls the real
/// function. Without an entry of the client the result is `none`.
pub(crate) fn list<E: Entry>(
    device: nvmlDevice_t,
    (count, entries): (*mut c_uint, *mut E),
    none: nvmlReturn_t,
    fetch: impl Fn(*mut c_uint, *mut E) -> nvmlReturn_t,
) -> nvmlReturn_t {
    let own = guarded(None, || {
        let account = account_of(device).filter(|_| !count.is_null())?;
        Some(fetch_all(&fetch).map(|all| of_client(all, account)))
    });
    let own = match own {
        Some(Ok(own)) => own,
        Some(Err(result)) => return result,
        None => return fetch(count, entries),
    };
    // SAFETY: `count` is not null, so it is readable and writable, as NVML requires.
    let room = unsafe { count.replace(c_uint::try_from(own.len()).unwrap_or(c_uint::MAX)) };
    if own.is_empty() {
        return none;
    }
    if (room as usize) < own.len() {
        return NVML_ERROR_INSUFFICIENT_SIZE;
    }
    if entries.is_null() {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    // SAFETY: the caller states that there is room for as many entries.
    unsafe { entries.copy_from_nonoverlapping(own.as_ptr(), own.len()) };
    NVML_SUCCESS
}

/// All entries of the real function, or its error.
fn fetch_all<E: Entry>(fetch: &impl Fn(*mut c_uint, *mut E) -> nvmlReturn_t) -> Result<Vec<E>, nvmlReturn_t> {
    let mut room = 64;
    loop {
        // Twice the room that is stated: entries of some driver versions (535.43 to 535.86) are larger than those of all others.
        let mut all = vec![E::default(); 2 * room];
        let mut count = c_uint::try_from(room).unwrap_or(c_uint::MAX);
        match fetch(&raw mut count, all.as_mut_ptr()) {
            NVML_SUCCESS => {
                all.truncate(room.min(count as usize));
                return Ok(all);
            }
            // Processes may begin between two calls.
            NVML_ERROR_INSUFFICIENT_SIZE if room < MAX_ENTRIES => {
                room = (2 * room).max(count as usize).min(MAX_ENTRIES)
            }
            error => return Err(error),
        }
    }
}

/// The entries of the client's processes. If the manager does not answer, only those of this process.
fn of_client<E: Entry>(mut all: Vec<E>, account: &Account) -> Vec<E> {
    let mut answers = true;
    all.retain(|entry| {
        let answer = if answers { account.owns_process(entry.pid()) } else { None };
        answers = answer.is_some();
        answer.unwrap_or_else(|| entry.pid() == std::process::id())
    });
    all
}

/// The account of the client on a device; `None` if nothing is governed there.
fn account_of(device: nvmlDevice_t) -> Option<&'static Account> {
    memory_accounts::of_nvml_device(uuid(device)?, || {
        let mut count = 0;
        // SAFETY: `count` is writable.
        let asked = unsafe { real_nvml::real().nvmlDeviceGetCount_v2?(&raw mut count) };
        (asked == NVML_SUCCESS).then_some(count)
    })
}

/// The UUID of a device, or of a MIG instance.
fn uuid(device: nvmlDevice_t) -> Option<[u8; 16]> {
    let mut text: [c_char; UUID_TEXT_LEN] = [0; UUID_TEXT_LEN];
    let get = real_nvml::real().nvmlDeviceGetUUID?;
    #[expect(clippy::cast_possible_truncation, reason = "96")]
    // SAFETY: the buffer is writable for its length; the device is the program's argument of a call that takes one.
    let asked = unsafe { get(device, text.as_mut_ptr(), UUID_TEXT_LEN as c_uint) };
    if asked != NVML_SUCCESS {
        return None;
    }
    parse_uuid(&text.map(|byte| byte.to_ne_bytes()[0]))
}

/// The number in a text such as `GPU-01234567-89ab-cdef-0123-456789abcdef`. Earlier drivers name MIG instances otherwise: `None`.
fn parse_uuid(text: &[u8]) -> Option<[u8; 16]> {
    let text = text.split(|byte| *byte == 0).next()?;
    let digits = text.strip_prefix(b"GPU-").or_else(|| text.strip_prefix(b"MIG-"))?;
    let mut digits = digits.iter().filter(|byte| **byte != b'-').map(|byte| char::from(*byte).to_digit(16));
    let mut uuid = [0; 16];
    for byte in &mut uuid {
        let (high, low) = (digits.next()??, digits.next()??);
        *byte = u8::try_from(high << 4 | low).ok()?;
    }
    digits.next().is_none().then_some(uuid)
}

#[cfg(test)]
mod tests;
