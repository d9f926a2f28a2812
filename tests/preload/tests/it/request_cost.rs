//! What the hook adds to a request of a latency-critical service, counted by the simulated driver.

use std::collections::BTreeMap;

use sluice_preload_tests::recording_manager::{RecordingManager, Understands};
use sluice_preload_tests::{Node, shared};

const REQUESTS: u64 = 200;

/// Result of one run.
#[derive(Debug)]
struct Cost {
    /// Driver calls on the program's thread that the program did not make, by function.
    added: BTreeMap<String, i64>,
    holds: u64,
}

/// Runs `REQUESTS` requests with `hint`, under the hook with this number of contenders, or without the hook.
fn cost(hint: &str, hints: &str, contenders: Option<u64>) -> Cost {
    let node = Node::with("2\nlc 0.5 1.0 8589934592\nother 0.5 1.0 8589934592\n").without_manager().start();
    let manager = RecordingManager::start(&node.socket(), Understands::Contexts);
    manager.set_contenders(true, contenders.unwrap_or(0));
    let tenant = node.tenant("lc", "requests").arguments(&format!("{hint} 0 {REQUESTS}"));
    let tenant = tenant.environment("SLUICE_HINTS", hints);
    let mut tenant = if contenders.is_some() { tenant.start() } else { tenant.without_hook().start() };
    let number = |word: Option<&str>| {
        word.and_then(|word| word.parse::<i64>().ok()).unwrap_or_else(|| panic!("a number expected"))
    };
    let line = tenant.line();
    let mut words = line.split(' ').skip(1).step_by(2);
    let (made, asked) = (number(words.next()), number(words.next()));
    let mut added = BTreeMap::new();
    let holds = loop {
        let line = tenant.line();
        let (what, count) = line.split_once(' ').unwrap_or_default();
        match what {
            "holds" => break number(Some(count)),
            _ => added.insert(what.to_owned(), number(Some(count))),
        };
    };
    tenant.finish().expect_success();
    assert_eq!(made - asked, added.values().sum::<i64>(), "the list is whole: {added:?}");
    Cost { added, holds: holds.try_into().unwrap_or(0) }
}

#[test]
fn without_the_hook_no_call_is_added() {
    let _lock = shared();
    let cost = cost("none", "off", None);
    assert!(cost.added.is_empty() && cost.holds == 0, "{cost:?}");
}

#[test]
fn without_hints_the_hook_adds_no_driver_call() {
    let _lock = shared();
    for contenders in [0, 1] {
        let cost = cost("none", "off", Some(contenders));
        assert!(cost.added.is_empty() && cost.holds == 0, "beside {contenders}: {cost:?}");
    }
}

#[test]
fn hints_without_contenders_add_no_driver_call() {
    let _lock = shared();
    let cost = cost("none", "auto", Some(0));
    assert!(cost.added.is_empty() && cost.holds == 0, "{cost:?}");
}

#[test]
fn a_hint_adds_two_launches_and_one_context_query() {
    let _lock = shared();
    let cost = cost("api", "api", Some(1));
    assert_eq!(cost.holds, REQUESTS);
    let added: Vec<_> = cost.added.iter().map(|(what, count)| (what.as_str(), *count)).collect();
    let requests = i64::try_from(REQUESTS).unwrap_or(0);
    assert_eq!(added, [("cuCtxGetCurrent", requests), ("cuLaunchKernel", 2 * requests)]);
}

#[test]
fn automatic_holds_add_no_more_calls_than_requested_ones() {
    let _lock = shared();
    for hints in ["start", "auto"] {
        let cost = cost("auto", hints, Some(1));
        // Requests without a pause between them are one request to a hold kernel that spans them.
        assert!(cost.holds > 0 || hints == "auto", "{cost:?}");
        adds_no_more_than_requested(&cost);
    }
}

fn adds_no_more_than_requested(cost: &Cost) {
    let most = |what: &str| match what {
        "cuCtxGetCurrent" => 2 * REQUESTS,
        // Predicted holds are launched by another thread.
        "cuLaunchKernel" => 2 * cost.holds,
        _ => 0,
    };
    let over =
        cost.added.iter().find(|(what, count)| u64::try_from(**count).is_ok_and(|count| count > most(what)));
    assert_eq!(over, None, "{cost:?}");
}
