use super::*;

#[test]
fn uuid_is_read_with_and_without_its_parts_and_nothing_else_is() {
    let wanted =
        [0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef];
    assert_eq!(parse_uuid(b"GPU-01234567-89ab-cdef-0123-456789abcdef\0\0"), Some(wanted));
    assert_eq!(parse_uuid(b"MIG-01234567-89AB-CDEF-0123-456789ABCDEF\0"), Some(wanted));
    for text in [
        "",
        "01234567-89ab-cdef-0123-456789abcdef",
        "GPU-01234567-89ab-cdef-0123-456789abcde",
        "GPU-01234567-89ab-cdef-0123-456789abcdef0",
        "MIG-GPU-01234567-89ab-cdef-0123-456789abcdef/1/0",
    ] {
        assert_eq!(parse_uuid(text.as_bytes()), None, "{text}");
    }
}

/// A real function that has this many processes, with pids from 1 on.
fn lists(present: usize) -> impl Fn(*mut c_uint, *mut nvmlProcessInfo_v2_t) -> nvmlReturn_t {
    move |count, entries| {
        // SAFETY: the count is writable, and as many entries as it states.
        unsafe {
            let room = count.replace(c_uint::try_from(present).expect("few")) as usize;
            if room < present {
                return NVML_ERROR_INSUFFICIENT_SIZE;
            }
            for at in 0..present {
                (*entries.add(at)).pid = c_uint::try_from(at).expect("few") + 1;
            }
        }
        NVML_SUCCESS
    }
}

#[test]
fn all_entries_are_fetched_however_many_there_are() {
    for present in [0, 1, 64, 65, 1000] {
        let pids: Vec<usize> =
            fetch_all(&lists(present)).expect("a list").iter().map(|entry| entry.pid as usize).collect();
        assert_eq!(pids, (1..=present).collect::<Vec<_>>());
    }
    let endless = |_: *mut c_uint, _: *mut nvmlProcessInfo_v2_t| NVML_ERROR_INSUFFICIENT_SIZE;
    assert_eq!(fetch_all(&endless).err(), Some(NVML_ERROR_INSUFFICIENT_SIZE));
}
