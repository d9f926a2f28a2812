//! Every function with a relevant name has a policy, also when the table grows.

use sluice_driver_api::{ENTRIES, Policy};

/// Parts of names that indicate launching, memory, waiting, capturing, lookup, or streams, contexts and events.
const RELEVANT: &[&str] = &[
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

/// Functions with such a name that the hook forwards, and why.
const FORWARDED: &[(&str, &str)] = &[
    ("cuArrayGetMemoryRequirements", "returns the size of an array, allocates nothing"),
    ("cuDestroyExternalMemory", "the memory belongs to the API that exported it"),
    ("cuExternalMemoryGetMappedBuffer", "maps memory of another API, allocates nothing"),
    ("cuExternalMemoryGetMappedMipmappedArray", "maps memory of another API, allocates nothing"),
    ("cuGetExportTable", "private tables of the driver, of which the signatures are not known"),
    ("cuGraphAddEventRecordNode", "adds to a graph; the launch of the graph has a policy"),
    ("cuGraphAddMemFreeNode", "the memory that the device keeps for graphs is charged by its size"),
    ("cuGraphEventRecordNodeGetEvent", "reads a graph node"),
    ("cuGraphEventRecordNodeSetEvent", "changes a graph node"),
    ("cuGraphMemAllocNodeGetParams", "reads a graph node"),
    ("cuGraphMemFreeNodeGetParams", "reads a graph node"),
    ("cuImportExternalMemory", "the memory belongs to the API that exported it"),
    ("cuIpcCloseMemHandle", "the memory is charged to the process that allocated it"),
    ("cuIpcOpenMemHandle", "the memory is charged to the process that allocated it"),
    ("cuMemAddressFree", "address space only"),
    ("cuMemAllocHost", "host memory"),
    ("cuMemGetAllocationGranularity", "returns a number"),
    ("cuMemGetAllocationPropertiesFromHandle", "reads a handle"),
    ("cuMemHostAlloc", "host memory"),
    ("cuMemImportFromShareableHandle", "the memory is charged to the process that created it"),
    ("cuMemPoolImportFromShareableHandle", "the memory is charged to the process that created it"),
    ("cuMemPoolImportPointer", "the memory is charged to the process that created it"),
    ("cuMipmappedArrayGetMemoryRequirements", "returns the size of an array, allocates nothing"),
    ("cuMulticastCreate", "an object over memory that was charged to the owner of each device"),
    ("cuTensorMapSetAllocationClass", "changes a descriptor"),
    ("cuThreadExchangeStreamCaptureMode", "sets which calls a capture forbids; begins and ends no capture"),
];

/// A synchronous copy: `cuMemcpy` and no `Async` behind it.
fn is_waiting_copy(name: &str) -> bool {
    name.starts_with("cuMemcpy") && !name.ends_with("Async")
}

#[test]
fn every_function_with_a_relevant_name_has_a_policy_or_a_reason() {
    let without_reason: Vec<_> = ENTRIES
        .iter()
        .filter(|entry| entry.policy == Policy::Forward)
        .filter(|entry| RELEVANT.iter().any(|part| entry.name.contains(part)) || is_waiting_copy(entry.name))
        .filter(|entry| !FORWARDED.iter().any(|(name, _)| *name == entry.name))
        .map(|entry| entry.symbol)
        .collect();
    assert_eq!(without_reason, [""; 0], "add a policy in policies.toml, or a reason here");
}

#[test]
fn every_reason_belongs_to_a_forwarded_function() {
    for (name, reason) in FORWARDED {
        assert!(
            ENTRIES.iter().any(|entry| entry.name == *name && entry.policy == Policy::Forward),
            "{name} ({reason}) has a policy or does not exist"
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
fn every_copy_is_synchronous_or_asynchronous() {
    for entry in ENTRIES.iter().filter(|entry| entry.name.starts_with("cuMemcpy")) {
        let is_within_gpu = ["DtoD", "DtoA", "AtoD", "AtoA"].iter().any(|ends| entry.name.contains(ends));
        let expected = match (entry.name.ends_with("Async"), is_within_gpu) {
            (true, false) => Policy::Copy,
            (false, false) => Policy::Sync,
            (true, true) => Policy::GatedCopy,
            (false, true) => Policy::GatedSync,
        };
        assert_eq!(entry.policy, expected, "{}", entry.symbol);
    }
}

#[test]
fn every_memset_and_decompression_passes_the_launch_gate() {
    let runs_on_multiprocessors =
        |name: &str| name.starts_with("cuMemset") || name.starts_with("cuMemBatchDecompress");
    for entry in ENTRIES.iter().filter(|entry| runs_on_multiprocessors(entry.name)) {
        let is_gated = matches!(entry.policy, Policy::GatedOrder | Policy::GatedTurn);
        assert!(is_gated, "{}: {:?}", entry.symbol, entry.policy);
    }
}

#[test]
fn symbols_of_each_policy_are_these() {
    let of = |policy| {
        ENTRIES.iter().filter(|entry| entry.policy == policy).map(|entry| entry.symbol).collect::<Vec<_>>()
    };
    assert_eq!(
        of(Policy::Launch),
        [
            "cuGraphLaunch",
            "cuGraphLaunch_ptsz",
            "cuLaunch",
            "cuLaunchGrid",
            "cuLaunchGridAsync",
            "cuLaunchKernel",
            "cuLaunchKernel_ptsz",
        ]
    );
    assert_eq!(
        of(Policy::Cooperative),
        [
            "cuLaunchCooperativeKernel",
            "cuLaunchCooperativeKernel_ptsz",
            "cuLaunchCooperativeKernelMultiDevice",
            "cuLaunchKernelEx",
            "cuLaunchKernelEx_ptsz",
        ]
    );
    assert_eq!(of(Policy::ContextLimit), ["cuCtxSetLimit"]);
    assert_eq!(of(Policy::Trim), ["cuDeviceGraphMemTrim", "cuMemPoolTrimTo"]);
    assert_eq!(
        of(Policy::Pool),
        [
            "cuGraphAddMemAllocNode",
            "cuGraphAddNode",
            "cuGraphAddNode_v2",
            "cuGraphAddNode_v3",
            "cuMemGetDefaultMemPool",
            "cuMemGetMemPool",
            "cuMemPoolCreate",
            "cuMemPoolDestroy",
        ]
    );
    assert_eq!(of(Policy::Physical), ["cuMemMap", "cuMemRetainAllocationHandle", "cuMemUnmap"]);
    assert_eq!(of(Policy::Init), ["cuInit"]);
    assert_eq!(
        of(Policy::AllocAsync),
        [
            "cuMemAllocAsync",
            "cuMemAllocAsync_ptsz",
            "cuMemAllocFromPoolAsync",
            "cuMemAllocFromPoolAsync_ptsz",
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
