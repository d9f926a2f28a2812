//! Any text is a value of our annotations and KubeShare's labels, or refused with a message; what is accepted reads back as
//! written.
#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use sluice_placement::annotations::{GpuRequest, assigned, keys, kubeshare, parse_duration, parse_quantity};

const LABELS: [&str; 8] = [
    "sharedgpu/gpu_request",
    "sharedgpu/gpu_limit",
    "sharedgpu/gpu_mem",
    "sharedgpu/gpu_model",
    "sharedgpu/priority",
    "sharedgpu/group_name",
    "sharedgpu/group_headcount",
    "sharedgpu/group_threshold",
];

/// Lines are values; which key each is for goes by its place, skipped where the line is empty.
fn values(text: &str, keys: &[&str]) -> BTreeMap<String, String> {
    let lines = text.split('\n').zip(keys).filter(|(value, _)| !value.is_empty());
    lines.map(|(value, key)| ((*key).to_owned(), value.to_owned())).collect()
}

fuzz_target!(|text: &str| {
    let _ = (parse_quantity(text), parse_duration(text));
    let _ = assigned(&BTreeMap::from([(keys::ASSIGNED_GPU.to_owned(), text.to_owned())]));
    match GpuRequest::admit(&values(text, &keys::USER)) {
        Ok(Some(request)) => {
            assert_eq!(GpuRequest::admit(&request.to_annotations()), Ok(Some(request)));
        }
        Ok(None) => {}
        Err(mistakes) => assert!(!mistakes.to_string().is_empty()),
    }
    let labels = values(text, &LABELS);
    if let Ok(translation) = kubeshare::translate(&labels, &BTreeMap::new()) {
        // What is translated is a request of ours, and translating it again changes nothing.
        assert!(GpuRequest::admit(&translation.annotations).is_ok());
        assert_eq!(kubeshare::translate(&labels, &translation.annotations), Ok(translation));
    }
});
