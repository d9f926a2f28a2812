//! `cuGetProcAddress`.

pub(crate) use super::checkpoint::*;

use crate::border::{Ptr, Status};
use crate::exports;
use sluice_driver_api::lookup_index;
use sluice_driver_api::types::*;

/// A version that is newer than any function of the table.
const ANY_VERSION: c_int = c_int::MAX;

fn find(name: &str, version: c_int, flags: u64) -> Result<usize, CUdriverProcAddressQueryResult> {
    let found = lookup_index(name, version, flags).and_then(exports::address);
    found.ok_or_else(|| match lookup_index(name, ANY_VERSION, flags) {
        Some(_) => CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT,
        None => CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND,
    })
}

/// With a place for the status, a name that is not found is no error.
pub(crate) fn cuGetProcAddress_v2(
    name: Ptr<c_char>,
    function: Ptr<*mut c_void>,
    version: c_int,
    flags: u64,
    status: Ptr<CUdriverProcAddressQueryResult>,
) -> Status {
    if flags > 2 {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    match find(&name.text()?, version, flags) {
        Ok(address) => {
            status.write_if_wanted(CU_GET_PROC_ADDRESS_SUCCESS);
            function.write_handle(address)
        }
        Err(why) => {
            function.write_handle(0)?;
            status.write_if_wanted(why);
            if status.is_null() { Err(CUresult::ERROR_NOT_FOUND) } else { Ok(()) }
        }
    }
}

pub(crate) fn cuGetProcAddress(
    name: Ptr<c_char>,
    function: Ptr<*mut c_void>,
    version: c_int,
    flags: u64,
) -> Status {
    cuGetProcAddress_v2(name, function, version, flags, Ptr::null())
}
