//! The memory accounts of this process, one for each GPU, by UUID.
//!
//! The CUDA device and NVML's device of a GPU share the account: a manager keeps one memory connection for each process. NVML alone opens
//! no token connection, so a process that only monitors requests no grants.

use sluice_hook_core::config::Managers;
use sluice_hook_core::memory::MemoryAccount;

use crate::gpu::MAX_DEVICES;
use crate::leaked::Leaked;
use crate::link::{Address, ClientIdentity, MemoryConnection};
use crate::settings::setup;

type Account = MemoryAccount<MemoryConnection>;

/// The device number of an account that no CUDA device of this process uses: no page shows whether its manager runs.
const NO_DEVICE: u32 = u32::MAX;

/// Without a lock, because NVML is also used in children of forks. The used places come first.
static ACCOUNTS: [Leaked<Account>; MAX_DEVICES] = [const { Leaked::none() }; MAX_DEVICES];

/// The account of a GPU, made if there is none; `None` if there are too many GPUs.
pub(crate) fn of_gpu(address: &Address, identity: &ClientIdentity) -> Option<&'static Account> {
    let make = || {
        let connection = MemoryConnection::new(address.clone(), identity.clone());
        MemoryAccount::new(connection, setup().config.fail_closed)
    };
    let mut places = ACCOUNTS.iter().map(|place| place.get().unwrap_or_else(|| place.publish(make())));
    places.find(|account| account.link.uuid() == identity.uuid)
}

/// The account of the GPU or MIG instance with this UUID; `None` if it has no manager or the hook is disabled. `count` returns the number of
/// devices that NVML shows.
pub(crate) fn of_nvml_device(
    uuid: [u8; 16],
    count: impl FnOnce() -> Option<u32>,
) -> Option<&'static Account> {
    let setup = setup();
    if setup.disabled {
        return None;
    }
    if let Some(account) = ACCOUNTS.iter().map_while(Leaked::get).find(|account| account.link.uuid() == uuid)
    {
        return Some(account);
    }
    // Only sockets in a directory have the UUID in their name. NVML and CUDA number several devices differently.
    let is_named = matches!(setup.config.managers, Managers::Directory { .. });
    if !is_named {
        if count() != Some(1) {
            return None;
        }
        // CUDA names the same memory by the UUID of a MIG instance. A second connection to its manager would replace the first one.
        if let Some(account) = ACCOUNTS[0].get() {
            return Some(account);
        }
    }
    let address = Address::of_manager(&setup.config.managers, 0, &uuid)?;
    of_gpu(&address, &ClientIdentity { name: setup.name, ordinal: NO_DEVICE, uuid })
}

/// Closes the parent's connections in the child of a fork. The child makes accounts of its own: another thread of the parent may have used
/// these.
pub(crate) fn after_fork() {
    for account in ACCOUNTS.iter().map_while(Leaked::get) {
        account.link.close_in_child();
    }
    ACCOUNTS.iter().for_each(Leaked::forget);
}
