use super::open_files;
use std::os::unix::fs::FileExt;

#[test]
fn file_counts_with_the_pages_that_exist() {
    let file = std::fs::File::from(sluice_sys::memfd::empty("sluice-memory", 1 << 20).unwrap());
    let pid = std::process::id().cast_signed();
    let sizes = || open_files(pid).into_values().collect::<Vec<_>>();
    assert_eq!(sizes(), [0]);
    file.write_all_at(&[1], 0).unwrap();
    assert_eq!(sizes(), [4096]);
    drop(file);
    assert!(sizes().is_empty());
}
