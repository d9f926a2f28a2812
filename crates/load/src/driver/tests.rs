use super::*;

#[test]
fn uuid_is_written_as_nvml_writes_it() {
    let bytes = [0x5a, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0xff];
    assert_eq!(nvml_uuid(bytes), "GPU-5a010203-0405-0607-0809-0a0b0c0d0eff");
}

#[test]
fn missing_library_is_named_in_the_error() {
    let why = Driver::open_library(Path::new("/nowhere/libcuda.so.1")).err().map(|why| why.to_string());
    assert!(why.is_some_and(|why| why.contains("/nowhere/libcuda.so.1") && why.contains("No such file")));
}
