use super::*;

fn process(pid: u32, bytes: u64) -> ProcessInfo {
    let used_gpu_memory = UsedGpuMemory::Used(bytes);
    ProcessInfo { pid, used_gpu_memory, gpu_instance_id: None, compute_instance_id: None }
}

#[test]
fn gpu_that_cannot_list_drawing_processes_reports_the_computing_ones() {
    let merged = merge(vec![process(8, 20), process(7, 10)], Err(NvmlError::NotSupported)).unwrap();
    let memory = |pid, bytes| ProcessMemory { pid, bytes: Some(bytes) };
    assert_eq!(merged, [memory(7, 10), memory(8, 20)]);
}

#[test]
fn other_failure_of_the_list_of_drawing_processes_fails_the_reading() {
    let merged = merge(vec![process(7, 10)], Err(NvmlError::GpuLost));
    assert!(matches!(merged, Err(NvmlError::GpuLost)), "{merged:?}");
}

#[test]
fn process_that_computes_and_draws_is_counted_once() {
    let merged = merge(vec![process(7, 10)], Ok(vec![process(7, 10)])).unwrap();
    assert_eq!(merged, [ProcessMemory { pid: 7, bytes: Some(10) }]);
}

#[test]
fn library_that_filters_nvml_is_refused_with_a_reason() {
    assert_eq!(check_unfiltered(), Ok(()));
    let why = check_absent(c"malloc").unwrap_err();
    assert!(why.contains("hook is loaded in this process"), "{why}");
}
