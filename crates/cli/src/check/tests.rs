use super::*;
use sluice_load::kernel;
use sluice_load::record::{BeCounts, BufferState};

const ASKED: u64 = 256 << 20;

fn records(change: impl FnOnce(&mut u64, &mut BeCounts, &mut Vec<String>)) -> Vec<Record> {
    let sum = kernel::expected_checksum(8192, 10);
    let buffer = BufferState { elements: 8192, checksum: format!("{sum:016x}") };
    let mut counts =
        BeCounts { launches: 10, completed: 10, peak_bytes: ASKED, denied: 27, ..BeCounts::default() };
    let (mut memory_total, mut errors) = (ASKED, Vec::new());
    change(&mut memory_total, &mut counts, &mut errors);
    vec![
        Record::Started { pid: 1, device: "GPU".to_owned(), memory_total },
        Record::BeFinal { counts, buffer, errors },
    ]
}

#[track_caller]
fn refused(expected: &str, change: impl FnOnce(&mut u64, &mut BeCounts, &mut Vec<String>)) {
    let error = compare(&records(change), ASKED).expect_err("accepted").to_string();
    assert!(error.contains(expected), "{error}");
}

#[test]
fn a_pod_with_its_requested_memory_passes() {
    let confirmed = compare(&records(|_, _, _| ()), ASKED).expect("refused");
    assert_eq!(confirmed[0], "GPU, 256 MiB of memory and not a byte more");
}

#[test]
fn each_wrong_fact_is_named() {
    refused("CUDA shows 80 GiB of memory where 256 MiB", |total, _, _| *total = 80 << 30);
    refused("257 MiB were granted", |_, counts, _| counts.peak_bytes += 1 << 20);
    refused("256 MiB were granted", |_, counts, _| counts.denied = 0);
    refused("2 kernels were lost", |_, counts, _| counts.completed = 8);
    refused("result is wrong", |_, counts, _| (counts.launches, counts.completed) = (11, 11));
    refused("cuLaunchKernel failed", |_, _, errors| errors.push("cuLaunchKernel failed".to_owned()));
    assert!(compare(&[], ASKED).expect_err("accepted").to_string().contains("did not start"));
}

#[test]
fn an_address_is_asked_until_it_answers_and_the_last_error_is_reported() {
    let mut asked = 0;
    let mut answer_at_third = || {
        asked += 1;
        if asked == 3 { Ok(asked) } else { Err(anyhow::anyhow!("refusal {asked}")) }
    };
    assert_eq!(retry(&mut answer_at_third, || true).expect("an answer"), 3);
    let refused = retry(&mut answer_at_third, || false).expect_err("no answer");
    assert_eq!(refused.to_string(), "refusal 4");
}

#[test]
fn an_address_is_a_host_and_a_path() {
    assert_eq!(parts("http://10.0.0.1:9404/readyz").expect("a URL"), ("10.0.0.1:9404", "/readyz"));
    assert!(parts("https://10.0.0.1/readyz").is_err());
    assert!(parts("http://10.0.0.1").is_err());
}
