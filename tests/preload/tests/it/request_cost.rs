//! What the hook adds to a request of a latency-critical service and to a launch-bound program, counted by the simulated driver.

use std::collections::BTreeMap;

use sluice_preload_tests::recording_manager::{RecordingManager, Understands};
use sluice_preload_tests::{Node, Tenant, exclusive, shared};

const REQUESTS: u64 = 200;

/// A request that the hook measured with events. Times are microseconds since the program's begin.
#[derive(Debug)]
struct MeasuredRequest {
    begun_after: i64,
    ended_before: i64,
    calls: i64,
    recorded: i64,
}

/// Result of one run.
#[derive(Debug)]
struct Cost {
    /// The requests that the hook measured, those before the counted ones included. The other fields are without them.
    measured: Vec<MeasuredRequest>,
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
    let mut measured = Vec::new();
    let line = loop {
        let line = tenant.line();
        let Some(words) = line.strip_prefix("measured ") else { break line };
        let mut words = words.split(' ').map(|word| number(Some(word)));
        let mut next = || words.next().unwrap_or_else(|| panic!("four numbers expected"));
        measured.push(MeasuredRequest {
            begun_after: next(),
            ended_before: next(),
            calls: next(),
            recorded: next(),
        });
    };
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
    Cost { measured, added, holds: holds.try_into().unwrap_or(0) }
}

#[test]
fn without_the_hook_no_call_is_added() {
    let _lock = shared();
    let cost = cost("none", "off", None);
    assert!(cost.added.is_empty() && cost.holds == 0, "{cost:?}");
}

#[test]
fn without_hints_and_contenders_the_hook_adds_no_driver_call() {
    let _lock = shared();
    let cost = cost("none", "off", Some(0));
    assert!(cost.measured.is_empty() && cost.added.is_empty() && cost.holds == 0, "{cost:?}");
}

#[test]
fn without_hints_the_hook_adds_driver_calls_to_the_measured_requests_only() {
    let _lock = shared();
    let cost = cost("none", "off", Some(1));
    assert!(cost.added.is_empty() && cost.holds == 0, "{cost:?}");
    // The first burst is measured, which may be the program's preparation. The time to the next measured one doubles from 20 ms to
    // 5 s. A fast machine makes all requests before that. `device/tests/measurement.rs` of the hook's core shows which are measured.
    for (number, pair) in cost.measured.windows(2).enumerate() {
        let least_us = (20_000 << number.min(10)).min(5_000_000);
        assert!(pair[1].ended_before - pair[0].begun_after >= least_us, "{cost:?}");
    }
    // Two events are created, recorded and compared, with context queries.
    for measured in &cost.measured {
        assert!(measured.recorded == 2 && measured.calls <= 4 + 10, "{cost:?}");
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
    // Hold kernels follow the real clock: beside many other tests one of 200 hints had none.
    let _lock = exclusive();
    let cost = cost("api", "api", Some(1));
    assert_eq!(cost.holds, REQUESTS);
    // Beside what the hook asks about copies, as in the next test.
    let added = |what: &str| cost.added.get(what).copied().unwrap_or(0);
    let requests = i64::try_from(REQUESTS).unwrap_or(0);
    let asked_copies = added("cuCtxGetDevice");
    assert_eq!(added("cuLaunchKernel"), 2 * requests, "{cost:?}");
    assert_eq!(added("cuCtxGetCurrent"), requests + asked_copies, "{cost:?}");
}

#[test]
fn automatic_holds_add_no_more_calls_than_requested_ones() {
    let _lock = shared();
    let cost = cost("auto", "auto", Some(1));
    // The hook may be comparing copies by a kernel with copies by the driver. Then it asks whether a kernel could make a request's two
    // copies, each between two addresses of which it asks for both ends. The driver makes them: their host memory is not pinned.
    let asked_copies = cost.added.get("cuCtxGetDevice").map_or(0, |count| count.unsigned_abs());
    assert!(asked_copies <= 2 * REQUESTS, "{cost:?}");
    let most = |what: &str| match what {
        "cuCtxGetCurrent" => 2 * REQUESTS + asked_copies,
        "cuCtxGetDevice" | "cuStreamGetCtx" => asked_copies,
        "cuPointerGetAttributes" => 4 * asked_copies,
        // Predicted holds are launched by another thread.
        "cuLaunchKernel" => 2 * cost.holds,
        _ => 0,
    };
    let over =
        cost.added.iter().find(|(what, count)| u64::try_from(**count).is_ok_and(|count| count > most(what)));
    assert_eq!(over, None, "{cost:?}");
}

/// What the hook adds to a launch-bound program.
#[derive(Debug)]
struct TokenCost {
    /// Driver calls on the program's thread that the program did not make, by function.
    added: BTreeMap<String, i64>,
    /// How often the tracker went to sleep, and in how many microseconds.
    tracker: (u64, u64),
}

const TOKENS: i64 = 200;
const BLOCKS: usize = 4;

/// Runs `BLOCKS` times `TOKENS` tokens of 30 launches and one wait under an unlimited grant beside so many contenders.
fn token_costs(latency_critical: bool, contenders: u64) -> Vec<TokenCost> {
    let node =
        Node::with("2\nclient 0.5 1.0 8589934592\nother 0.5 1.0 8589934592\n").without_manager().start();
    let manager = RecordingManager::start(&node.socket(), Understands::Contexts);
    manager.set_contenders(latency_critical, contenders);
    let tenant = node.tenant("client", "launch_bound").arguments(&format!("{TOKENS} 30 20000 {BLOCKS}"));
    let mut tenant = tenant.environment("SLUICE_HINTS", "off").start();
    tenant.expect("ready");
    let costs = (0..BLOCKS).map(|_| block_cost(&mut tenant)).collect();
    tenant.finish().expect_success();
    costs
}

fn block_cost(tenant: &mut Tenant) -> TokenCost {
    tenant.send("");
    let mut added = BTreeMap::new();
    loop {
        let line = tenant.line();
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["token", ..] => {}
            ["calls", made, "of", own] => {
                let number = |word: &str| word.parse::<i64>().expect("a number");
                added.insert("all".to_owned(), number(made) - number(own));
            }
            ["tracker", sleeps, "in", us] => {
                let tracker = (sleeps.parse().expect("a number"), us.parse().expect("a number"));
                return TokenCost { added, tracker };
            }
            [function, count] => {
                added.insert(function.to_owned(), count.parse().expect("a number"));
            }
            _ => panic!("{line}"),
        }
    }
}

#[test]
fn token_of_a_launch_bound_program_costs_two_context_queries_in_either_class() {
    let _lock = shared();
    for (latency_critical, contenders) in [(true, 0), (false, 0), (false, 1)] {
        for TokenCost { added, tracker } in token_costs(latency_critical, contenders) {
            let of = |what: &str| added.get(what).copied().unwrap_or(0);
            // On a busy machine the program stands still for so long that a poll of the tracker queries the driver. The stream is noted
            // once more afterwards.
            let polls = i64::try_from(tracker.0).expect("few") + 1;
            let queries = of("cuCtxGetCurrent");
            let what =
                format!("critical: {latency_critical}, contenders: {contenders}, {polls} polls: {added:?}");
            assert!((2 * TOKENS..=2 * TOKENS + polls).contains(&queries), "{what}");
            assert_eq!(of("all"), queries, "{what}");
        }
    }
}

#[test]
fn measured_tokens_of_a_launch_bound_program_add_calls_for_two_events() {
    let _lock = shared();
    let TokenCost { mut added, tracker: (_, us) } = token_costs(true, 1).swap_remove(0);
    let all = added.remove("all").unwrap_or(0) - 2 * TOKENS;
    let mut take = |function: &str| added.remove(function).unwrap_or(0);
    let queries = take("cuCtxGetCurrent") - 2 * TOKENS;
    let (created, recorded, compared) =
        (take("cuEventCreate"), take("cuEventRecord"), take("cuEventElapsedTime"));
    assert_eq!(all, queries + created + recorded + compared);
    assert!(added.is_empty(), "{added:?}");
    // The time to the next measured token doubles from 20 ms on.
    let most = (us / 20_000 + 1).ilog2() + 1;
    assert!(recorded <= 2 * i64::from(most), "{recorded} events in {us} us");
    assert!(created <= recorded && compared <= recorded && queries <= 2 * recorded, "{all} calls");
}

#[test]
fn tracker_wakes_at_most_each_5_ms_while_a_launch_bound_program_waits_for_each_token() {
    let _lock = shared();
    for latency_critical in [true, false] {
        // In a block in which the machine stops the program for more than 20 ms, the tracker rightly polls each 2 ms. Without longer
        // intervals it would do so in each block.
        let costs = token_costs(latency_critical, 1);
        let is_rare = |cost: &TokenCost| cost.tracker.0 <= cost.tracker.1 / 5_000 + 5;
        assert!(costs.iter().any(is_rare), "{costs:?}");
    }
}
