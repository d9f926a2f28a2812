//! `lookup` returns the driver's result for a name, version and stream flag.

use sluice_driver_api::{ENTRIES, Variant, find_symbol, lookup, lookup_index};

/// The requests of four CUDA runtimes, one `name version flags` per line: recorded by tools/driver-api/record/record.sh.
const RUNTIMES: &[(&str, &str)] = &[
    ("11.8.89", include_str!("../fixtures/cudart-11.8.89.txt")),
    ("12.4.127", include_str!("../fixtures/cudart-12.4.127.txt")),
    ("12.9.79", include_str!("../fixtures/cudart-12.9.79.txt")),
    ("13.5.37", include_str!("../fixtures/cudart-13.5.37.txt")),
];
/// Requested by runtime 13.5, but in no public header, so the table cannot contain them.
const UNDECLARED: &[&str] = &["cuSubgridCreate", "cuSubgridWorkerGridCreate", "cuSubgridWorksetCreate"];
const PER_THREAD: u64 = 2;

fn symbol(name: &str, version: i32, flags: u64) -> Option<&'static str> {
    lookup(name, version, flags).map(|entry| entry.symbol)
}

#[test]
fn table_has_exactly_the_abi_that_each_runtime_requests() {
    for (runtime, asked) in RUNTIMES {
        let mut count = 0;
        for line in asked.lines() {
            let mut words = line.split(' ');
            let (Some(name), Some(version), Some(flags)) = (words.next(), words.next(), words.next()) else {
                panic!("cudart {runtime}: {line:?} is not three words");
            };
            let (version, flags): (i32, u64) = (version.parse().unwrap(), flags.parse().unwrap());
            // Runtimes from 12 on first request the empty name, at version 0.
            if name.is_empty() || UNDECLARED.contains(&name) {
                assert_eq!(symbol(name, version, flags), None);
                continue;
            }
            let entry = lookup(name, version, flags)
                .unwrap_or_else(|| panic!("cudart {runtime}: {line}: no such row"));
            let variant = if flags == PER_THREAD { Variant::Ptsz } else { Variant::Default };
            assert_eq!(
                (entry.since, entry.variant),
                (version.unsigned_abs(), variant),
                "cudart {runtime}: {line}"
            );
            count += 1;
        }
        assert!(count > 380, "cudart {runtime}: only {count} queries");
    }
}

#[test]
fn older_version_has_the_older_abi() {
    assert_eq!(symbol("cuMemAlloc", 2000, 0), Some("cuMemAlloc"));
    assert_eq!(symbol("cuMemAlloc", 3010, 0), Some("cuMemAlloc"));
    assert_eq!(symbol("cuMemAlloc", 3020, 0), Some("cuMemAlloc_v2"));
    assert_eq!(symbol("cuCtxSynchronize", 12090, 0), Some("cuCtxSynchronize"));
    assert_eq!(symbol("cuCtxSynchronize", 13000, 0), Some("cuCtxSynchronize_v2"));
    assert_eq!(symbol("cuEventElapsedTime", 12070, 0), Some("cuEventElapsedTime"));
    assert_eq!(symbol("cuEventElapsedTime", 12080, 0), Some("cuEventElapsedTime_v2"));
    assert_eq!(symbol("cuLaunchHostFunc", 13000, 0), Some("cuLaunchHostFunc"));
    assert_eq!(symbol("cuLaunchHostFunc", 13010, PER_THREAD), Some("cuLaunchHostFunc_v2_ptsz"));
    let contexts: Vec<_> =
        [2000, 3020, 11040, 12050].map(|version| symbol("cuCtxCreate", version, 0)).to_vec();
    assert_eq!(contexts, ["cuCtxCreate", "cuCtxCreate_v2", "cuCtxCreate_v3", "cuCtxCreate_v4"].map(Some));
    assert_eq!(symbol("cuGetProcAddress", 11030, 0), Some("cuGetProcAddress"));
    assert_eq!(symbol("cuGetProcAddress", 13000, 0), Some("cuGetProcAddress_v2"));
}

#[test]
fn per_thread_variants_are_returned_only_on_request_and_only_if_they_exist() {
    assert_eq!(symbol("cuLaunchKernel", 12000, 0), Some("cuLaunchKernel"));
    assert_eq!(symbol("cuLaunchKernel", 12000, 1), Some("cuLaunchKernel"));
    assert_eq!(symbol("cuLaunchKernel", 12000, PER_THREAD), Some("cuLaunchKernel_ptsz"));
    assert_eq!(symbol("cuLaunchKernel", 4000, PER_THREAD), None, "driver 580.159 returns the same");
    assert_eq!(symbol("cuMemcpyDtoH", 7000, PER_THREAD), Some("cuMemcpyDtoH_v2_ptds"));
    assert_eq!(symbol("cuMemAlloc", 13000, PER_THREAD), Some("cuMemAlloc_v2"));
    assert_eq!(symbol("cuGraphLaunch", 10000, PER_THREAD), Some("cuGraphLaunch_ptsz"));
}

#[test]
fn name_renamed_by_the_headers_has_the_drivers_result() {
    assert_eq!(symbol("cuGraphInstantiate", 10000, 0), Some("cuGraphInstantiate"));
    assert_eq!(symbol("cuGraphInstantiate", 11080, 0), Some("cuGraphInstantiate_v2"));
    // The headers mean cuGraphInstantiateWithFlags from here on; driver 580.159 does not (tests/gpu/check_table.c).
    assert_eq!(symbol("cuGraphInstantiate", 12000, 0), Some("cuGraphInstantiate_v2"));
}

#[test]
fn unknown_names_and_versions_before_the_function_have_no_result() {
    assert_eq!(symbol("cuNoSuchThing", 13000, 0), None);
    assert_eq!(symbol("cuMemAlloc_v2", 13000, 0), None, "the name is the base name");
    assert_eq!(symbol("", 13000, 0), None);
    assert_eq!(symbol("cuGraphLaunch", 9020, 0), None);
    assert_eq!(symbol("cuInit", -1, 0), None);
    assert_eq!(symbol("cuLaunchKernelEx", 11050, PER_THREAD), None);
}

#[test]
fn table_is_sorted_and_every_symbol_is_found() {
    for pair in ENTRIES.windows(2) {
        assert!(
            (pair[0].name, pair[0].variant, pair[0].since) < (pair[1].name, pair[1].variant, pair[1].since)
        );
    }
    for entry in ENTRIES {
        assert_eq!(find_symbol(entry.symbol), Some(entry));
        let index = lookup_index(
            entry.name,
            entry.since.cast_signed(),
            if entry.variant == Variant::Ptsz { 2 } else { 0 },
        );
        assert_eq!(index.map(|index| ENTRIES[index].symbol), Some(entry.symbol));
    }
    assert_eq!(find_symbol("cuMemAlloc_v3"), None);
    assert_eq!(find_symbol("cuMemAlloc_v"), None);
}
