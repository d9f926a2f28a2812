use super::*;

#[test]
fn after_a_missed_deadline_no_line_is_taken_for_an_answer() {
    let logs = tempfile::tempdir().unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "echo 0; read first; read second; echo 1; echo 2; read end"]);
    let mut worker = Worker::start("child", command, logs.path()).unwrap();
    let in_time = || Instant::now() + Duration::from_secs(20);
    assert_eq!(worker.answer::<u32>(in_time(), || Ok(())).unwrap(), 0);
    worker.process.send_line("first").unwrap();
    let error = worker.answer::<u32>(Instant::now(), || Ok(())).unwrap_err().to_string();
    assert!(error.contains("does not answer"), "{error}");
    worker.process.send_line("second").unwrap();
    let error = worker.answer::<u32>(in_time(), || Ok(())).unwrap_err().to_string();
    assert!(error.contains("child did not answer in time"), "{error}");
}
