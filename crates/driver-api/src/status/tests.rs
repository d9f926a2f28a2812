use super::*;

#[test]
fn status_is_four_bytes_as_in_c() {
    assert_eq!((size_of::<CUresult>(), align_of::<CUresult>()), (4, 4));
}

#[test]
fn known_status_is_named_and_unknown_one_is_numbered() {
    assert_eq!(CUresult::ERROR_OUT_OF_MEMORY.to_string(), "CUDA_ERROR_OUT_OF_MEMORY (2)");
    assert_eq!(CUresult(4242).to_string(), "CUDA status 4242");
    assert_eq!(CUresult::SUCCESS.c_name(), Some(c"CUDA_SUCCESS"));
    assert_eq!(CUresult::SUCCESS.ok(), Ok(()));
    assert_eq!(CUresult::ERROR_NOT_READY.ok(), Err(CUresult(600)));
}
