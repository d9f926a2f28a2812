//! No function that matters is forgotten when the table grows.

use sluice_driver_api::{ENTRIES, Policy};

/// Parts of names that speak of launching, memory, waiting, capturing, looking up, or of streams, contexts and events.
const TELLING: &[&str] = &[
    "Launch",
    "Alloc",
    "Free",
    "Synchronize",
    "MemGetInfo",
    "TotalMem",
    "Capture",
    "ProcAddress",
    "ExportTable",
    "MemCreate",
    "MemRelease",
    "ArrayCreate",
    "Array3DCreate",
    "ArrayDestroy",
    "PoolCreate",
    "PoolDestroy",
    "PoolTrim",
    "IpcOpenMem",
    "IpcCloseMem",
    "ImportFromShareable",
    "ImportPointer",
    "ExternalMemory",
    "MulticastCreate",
    "StreamCreate",
    "StreamDestroy",
    "CtxCreate",
    "CtxDestroy",
    "PrimaryCtxR",
    "CtxFrom",
    "EventRecord",
    "EventDestroy",
    "RecordEvent",
    "CtxSetCurrent",
    "CtxPushCurrent",
    "CtxPopCurrent",
    "CtxAttach",
    "CtxDetach",
    "GraphMemTrim",
    "MemPrefetch",
    "MemMap",
    "Subgrid",
];

/// Functions with such a name that the hook hands on all the same, and why.
const FORWARDED: &[(&str, &str)] = &[
    ("cuArrayGetMemoryRequirements", "tells what an array would need, allocates nothing"),
    ("cuDestroyExternalMemory", "the memory belongs to the API that exported it"),
    ("cuDeviceGraphMemTrim", "gives back memory that graphs cached; what graphs allocate is not charged"),
    ("cuExternalMemoryGetMappedBuffer", "maps memory of another API, allocates nothing"),
    ("cuExternalMemoryGetMappedMipmappedArray", "maps memory of another API, allocates nothing"),
    ("cuGetExportTable", "private tables of the driver, whose entries have no known signatures"),
    ("cuGraphAddEventRecordNode", "adds to a graph; the launch of the graph is governed"),
    (
        "cuGraphAddMemAllocNode",
        "the driver allocates when the graph is launched, at sizes that only it knows",
    ),
    ("cuGraphAddMemFreeNode", "see cuGraphAddMemAllocNode"),
    ("cuGraphEventRecordNodeGetEvent", "reads a graph node"),
    ("cuGraphEventRecordNodeSetEvent", "changes a graph node"),
    ("cuGraphMemAllocNodeGetParams", "reads a graph node"),
    ("cuGraphMemFreeNodeGetParams", "reads a graph node"),
    ("cuImportExternalMemory", "the memory belongs to the API that exported it"),
    ("cuIpcCloseMemHandle", "the memory is charged to the process that allocated it"),
    ("cuIpcOpenMemHandle", "the memory is charged to the process that allocated it"),
    ("cuMemAddressFree", "address space only"),
    ("cuMemAllocHost", "host memory"),
    ("cuMemGetAllocationGranularity", "tells a number"),
    ("cuMemGetAllocationPropertiesFromHandle", "reads a handle"),
    ("cuMemHostAlloc", "host memory"),
    ("cuMemImportFromShareableHandle", "the memory is charged to the process that created it"),
    ("cuMemMap", "maps memory that cuMemCreate was charged for"),
    ("cuMemPoolCreate", "an empty pool: what is taken from it is charged"),
    ("cuMemPoolDestroy", "what was taken from the pool is given back by cuMemFreeAsync"),
    ("cuMemPoolImportFromShareableHandle", "the memory is charged to the process that created it"),
    ("cuMemPoolImportPointer", "the memory is charged to the process that created it"),
    ("cuMemPoolTrimTo", "the pool's cache is not charged"),
    ("cuMemRetainAllocationHandle", "one more reference to memory that cuMemCreate was charged for"),
    ("cuMipmappedArrayGetMemoryRequirements", "tells what an array would need, allocates nothing"),
    ("cuMulticastCreate", "an object over memory that each device's owner was charged for"),
    ("cuTensorMapSetAllocationClass", "changes a descriptor"),
    ("cuThreadExchangeStreamCaptureMode", "says which calls a capture forbids; begins and ends nothing"),
];

/// A synchronous copy: `cuMemcpy` and no `Async` behind it.
fn is_waiting_copy(name: &str) -> bool {
    name.starts_with("cuMemcpy") && !name.ends_with("Async")
}

#[test]
fn every_function_with_a_telling_name_is_governed_or_excused() {
    let unexplained: Vec<_> = ENTRIES
        .iter()
        .filter(|entry| entry.policy == Policy::Forward)
        .filter(|entry| TELLING.iter().any(|part| entry.name.contains(part)) || is_waiting_copy(entry.name))
        .filter(|entry| !FORWARDED.iter().any(|(name, _)| *name == entry.name))
        .map(|entry| entry.symbol)
        .collect();
    assert_eq!(unexplained, [""; 0], "give them a word in policies.toml, or a reason here");
}

#[test]
fn no_excuse_outlives_its_function() {
    for (name, reason) in FORWARDED {
        assert!(
            ENTRIES.iter().any(|entry| entry.name == *name && entry.policy == Policy::Forward),
            "{name} ({reason}) is governed or gone"
        );
    }
}

#[test]
fn all_forms_of_a_function_have_one_policy() {
    for pair in ENTRIES.windows(2).filter(|pair| pair[0].name == pair[1].name) {
        assert_eq!(pair[0].policy, pair[1].policy, "{} and {}", pair[0].symbol, pair[1].symbol);
    }
}

#[test]
fn every_copy_is_known_as_one_that_waits_or_one_that_does_not() {
    for entry in ENTRIES.iter().filter(|entry| entry.name.starts_with("cuMemcpy")) {
        let expected = if entry.name.ends_with("Async") { Policy::Copy } else { Policy::Sync };
        assert_eq!(entry.policy, expected, "{}", entry.symbol);
    }
}

#[test]
fn the_symbols_that_the_hook_governs_are_these() {
    let of = |policy| {
        ENTRIES.iter().filter(|entry| entry.policy == policy).map(|entry| entry.symbol).collect::<Vec<_>>()
    };
    assert_eq!(
        of(Policy::Launch),
        [
            "cuGraphLaunch",
            "cuGraphLaunch_ptsz",
            "cuLaunch",
            "cuLaunchCooperativeKernel",
            "cuLaunchCooperativeKernel_ptsz",
            "cuLaunchCooperativeKernelMultiDevice",
            "cuLaunchGrid",
            "cuLaunchGridAsync",
            "cuLaunchKernel",
            "cuLaunchKernel_ptsz",
            "cuLaunchKernelEx",
            "cuLaunchKernelEx_ptsz",
        ]
    );
    assert_eq!(
        of(Policy::Alloc),
        [
            "cuArray3DCreate",
            "cuArray3DCreate_v2",
            "cuArrayCreate",
            "cuArrayCreate_v2",
            "cuMemAlloc",
            "cuMemAlloc_v2",
            "cuMemAllocAsync",
            "cuMemAllocAsync_ptsz",
            "cuMemAllocFromPoolAsync",
            "cuMemAllocFromPoolAsync_ptsz",
            "cuMemAllocManaged",
            "cuMemAllocPitch",
            "cuMemAllocPitch_v2",
            "cuMemCreate",
            "cuMipmappedArrayCreate",
        ]
    );
    assert_eq!(
        of(Policy::Free),
        [
            "cuArrayDestroy",
            "cuMemFree",
            "cuMemFree_v2",
            "cuMemFreeAsync",
            "cuMemFreeAsync_ptsz",
            "cuMemRelease",
            "cuMipmappedArrayDestroy",
        ]
    );
    assert_eq!(
        of(Policy::Query),
        ["cuDeviceTotalMem", "cuDeviceTotalMem_v2", "cuMemGetInfo", "cuMemGetInfo_v2"]
    );
    assert_eq!(of(Policy::Lookup), ["cuGetProcAddress", "cuGetProcAddress_v2"]);
    assert_eq!(
        of(Policy::Sync).iter().filter(|symbol| symbol.contains("Synchronize")).collect::<Vec<_>>(),
        [
            &"cuCtxSynchronize",
            &"cuCtxSynchronize_v2",
            &"cuEventSynchronize",
            &"cuStreamSynchronize",
            &"cuStreamSynchronize_ptsz",
        ]
    );
}
