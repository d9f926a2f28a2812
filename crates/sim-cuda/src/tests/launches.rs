//! Launches, modules and look-up.

use super::*;

#[test]
fn kernel_with_illegal_access_breaks_only_its_context() {
    let test = begin_test();
    launch(test.add, 0x1000, 8, legacy()).unwrap();
    assert_eq!(cuCtxSynchronize(), Err(CUresult::ERROR_ILLEGAL_ADDRESS));
    assert_eq!(launch(test.add, 0x1000, 8, legacy()), Err(CUresult::ERROR_ILLEGAL_ADDRESS));
    let mut other = std::ptr::null_mut();
    cuCtxCreate_v2(Ptr::of(&mut other), 0, 0).unwrap();
    assert_eq!(cuCtxSynchronize(), Ok(()));
    cuCtxDestroy_v2(handle(other)).unwrap();
}

#[test]
fn invalid_launch_is_refused_at_once() {
    let test = begin_test();
    let with = |grid: u32, block: u32, shared: u32| {
        let mut n = 0u32;
        let mut params: [*mut c_void; 1] = [(&raw mut n).cast()];
        cuLaunchKernel(
            test.none,
            grid,
            1,
            1,
            block,
            1,
            1,
            shared,
            legacy(),
            Ptr::first_of(&mut params),
            Ptr::null(),
        )
    };
    assert_eq!(with(1, 1_024, 227 << 10), Ok(()));
    for (grid, block, shared) in [(0, 1, 0), (1, 0, 0), (1, 1_025, 0), (1, 1, (227 << 10) + 1)] {
        assert_eq!(with(grid, block, shared), Err(CUresult::ERROR_INVALID_VALUE));
    }
    let cooperative = |grid| {
        let mut n = 0u32;
        let mut params: [*mut c_void; 1] = [(&raw mut n).cast()];
        cuLaunchCooperativeKernel(test.none, grid, 1, 1, 1_024, 1, 1, 0, legacy(), Ptr::first_of(&mut params))
    };
    assert_eq!(cooperative(264), Ok(()));
    assert_eq!(cooperative(265), Err(CUresult::ERROR_COOPERATIVE_LAUNCH_TOO_LARGE));
    assert_eq!(launch(Ptr::null(), 0, 0, legacy()), Err(CUresult::ERROR_INVALID_HANDLE));
}

#[test]
fn unknown_module_images_are_refused_as_by_the_driver() {
    let _test = begin_test();
    let load = |image: &[u8]| {
        let mut module = std::ptr::null_mut();
        cuModuleLoadData(Ptr::of(&mut module), Ptr::first_of(&mut image.to_vec()).cast())
    };
    assert_eq!(load(b"\x7fELF\0"), Err(CUresult::ERROR_NO_BINARY_FOR_GPU));
    assert_eq!(load(b"\x50\xed\x55\xba\0"), Err(CUresult::ERROR_NO_BINARY_FOR_GPU));
    assert_eq!(load(b".version 8.0\0"), Err(CUresult::ERROR_INVALID_PTX));
    assert_eq!(load(b"S\0"), Err(CUresult::ERROR_INVALID_IMAGE));
    assert_eq!(load(b"SLUICE-SIM 1\nkernel\0"), Err(CUresult::ERROR_INVALID_IMAGE));
}

#[test]
fn every_function_is_found_in_the_requested_variant() {
    let _test = begin_test();
    let find = |name: &str, version, flags| {
        let mut name: Vec<c_char> =
            name.bytes().chain([0]).map(|byte| c_char::from_ne_bytes([byte])).collect();
        let (mut address, mut status) = (std::ptr::null_mut::<c_void>(), 9);
        cuGetProcAddress_v2(
            Ptr::first_of(&mut name),
            Ptr::of(&mut address),
            version,
            flags,
            Ptr::of(&mut status),
        )
        .map(|()| (address.expose_provenance(), status))
    };
    let (legacy, per_thread) =
        (find("cuLaunchKernel", 13_000, 0).unwrap(), find("cuLaunchKernel", 13_000, 2).unwrap());
    assert!(legacy.0 != 0 && per_thread.0 != 0 && legacy.0 != per_thread.0);
    assert_eq!(find("cuNoSuchFunction", 13_000, 0), Ok((0, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND)));
    assert_eq!(find("cuLaunchKernelEx", 10_000, 0), Ok((0, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT)));
    for index in 0..sluice_driver_api::ENTRIES.len() {
        assert_ne!(crate::exports::address(index), None);
    }
}
