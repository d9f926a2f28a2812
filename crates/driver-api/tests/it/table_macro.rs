//! Uses of the table as in other crates.
#![allow(non_snake_case, reason = "functions have the driver's names")]

use std::ffi::{CStr, c_void};

use sluice_driver_api::types::*;
use sluice_driver_api::{ENTRIES, RealDriver, driver_api};

/// A function for each row, as in a library that exports them.
mod fake {
    use super::*;
    macro_rules! functions {
        ($($policy:ident $symbol:ident ($name:literal, $since:literal, $variant:ident) fn($($argument:ident: $kind:ty),*);)*) => {
            $(pub(super) unsafe extern "C" fn $symbol($($argument: $kind),*) -> CUresult {
                $(let _ = $argument;)*
                CUresult(stringify!($symbol).bytes().map(u32::from).sum())
            })*
            pub(super) const ADDRESSES: &[*const ()] = &[$($symbol as *const ()),*];
        };
    }
    driver_api!(functions);
}

fn resolve(symbol: &CStr) -> *mut c_void {
    let symbol = symbol.to_str().expect("symbols are ASCII");
    let index = ENTRIES.iter().position(|entry| entry.symbol == symbol).expect("the symbol is in the table");
    fake::ADDRESSES[index].cast_mut().cast()
}

#[test]
fn each_field_of_the_real_driver_calls_the_symbol_with_its_name() {
    assert_eq!(fake::ADDRESSES.len(), ENTRIES.len());
    // SAFETY: `resolve` returns functions generated from the same rows.
    let driver = unsafe { RealDriver::load(resolve) };
    let sum = |symbol: &str| CUresult(symbol.bytes().map(u32::from).sum());
    let mut pointer = 0;
    // SAFETY: these functions of `fake` use no argument.
    unsafe {
        assert_eq!(driver.cuMemAlloc_v2.unwrap()(&mut pointer, 1 << 40), sum("cuMemAlloc_v2"));
        assert_eq!(driver.cuCtxSynchronize.unwrap()(), sum("cuCtxSynchronize"));
        assert_eq!(
            driver.cuIpcOpenMemHandle.unwrap()(&mut pointer, CUipcMemHandle::default(), 0),
            sum("cuIpcOpenMemHandle")
        );
    }
}

#[test]
fn symbol_that_the_driver_lacks_is_none() {
    let without =
        |symbol: &CStr| if symbol == c"cuGraphLaunch" { std::ptr::null_mut() } else { resolve(symbol) };
    // SAFETY: as above; a null result is allowed.
    let driver = unsafe { RealDriver::load(without) };
    assert!(driver.cuGraphLaunch.is_none() && driver.cuGraphLaunch_ptsz.is_some());
    assert!(RealDriver::EMPTY.cuInit.is_none());
}
