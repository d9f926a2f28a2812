//! `sluice load`, without the hook.

use sluice_load::record::Record;
use sluice_preload_tests::artifacts::built;
use sluice_preload_tests::machine_lock::shared;
use sluice_preload_tests::node::Node;
use std::process::Command;

#[test]
fn decode_load_launches_every_kernel_of_each_token_and_reports_their_time() {
    let _machine = shared();
    let node = Node::with("").without_manager().start();
    let artifacts = built();
    let arguments = "load lc --count 160 --period-us 1000 --duration-us 20 --tokens 5 --token-us 60 --launches 3 --token-gap-us 10";
    let output = Command::new(&artifacts.sluice)
        .args(arguments.split(' '))
        .env("SLUICE_SIM_SOCKET", node.simulator())
        .env("LD_LIBRARY_PATH", &artifacts.driver)
        .env_remove("LD_PRELOAD")
        .output()
        .expect("sluice cannot be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("the records are not text");
    let last = text.lines().last().map(Record::parse);
    let Some(Ok(Record::LcFinal { counts, buffer, errors, .. })) = last else { panic!("{text}") };
    assert!(errors.is_empty(), "{errors:?}");
    // One launch before the first request; a request has one, and its tokens have 15.
    assert_eq!((counts.requests, counts.launches), (10, 161));
    assert!(buffer.is_after(counts.launches), "not every kernel ran once");
    let token = counts.token_us.expect("no time per token");
    assert!(token.p50 >= 70.0, "a token takes its GPU time and the host's: {token:?}");
}
