//! Moves of memory beside a latency-critical client that works: in small pieces with pauses.

use super::suspension::suspend;
use super::*;

/// A paced move copies so much at once.
const PIECE: u64 = 4 * MIB;
/// Copies of a move that is not paced: one for the chunk of each block.
const WHOLE: u64 = LARGE / BLOCK;

/// Copies and pauses of each move of the first program so far, by the log of its hook.
fn moves(node: &Node) -> Vec<(u64, u64)> {
    let log = std::fs::read_to_string(node.path().join("1-movable.hook.log")).unwrap();
    let number = |line: &str, key: &str| {
        let value = line.split_whitespace().find_map(|word| word.strip_prefix(key));
        value.unwrap_or_else(|| panic!("no {key} in {line}")).parse().unwrap()
    };
    let lines = log.lines().filter(|line| line.contains(" the GPU bytes="));
    lines.map(|line| (number(line, "copies="), number(line, "pauses="))).collect()
}

#[test]
fn memory_moves_in_small_pieces_with_pauses_while_a_latency_critical_client_works_and_at_once_otherwise() {
    let _lock = shared();
    let critical =
        format!("  - {{ name: critical, request: 0.3, class: latency-critical, memory: {} }}\n", 8 * MIB);
    let clients = client("first", ", overcommit: true") + &critical;
    let node = overcommitted(&clients, "--controls off").start();
    let clients = format!("clients:\n{clients}");
    let mut first = with_memory(&node, "first", LARGE);
    let mut service = node.tenant("critical", "movable").start();
    service.expect("ready");
    assert_eq!(service.ask(&format!("take {}", 8 * MIB)), "took 0");
    // Longer than the test lasts.
    service.send("run 600000");
    eventually("the service to work", || {
        node.ledger().by_label("critical").filter(|row| row.kernels_completed > 0).map(drop)
    });
    let moved = |number: usize| {
        eventually(&format!("{number} moves"), || (moves(&node).len() == number).then_some(()));
        moves(&node)
    };
    suspend(&node, &clients, true);
    moved(1);
    suspend(&node, &clients, false);
    // On a busy machine the service may stand for a second, and the rest of a chunk is then copied at once.
    let paced = moved(2);
    assert!(paced.iter().all(|(_, pauses)| 2 * pauses >= LARGE / PIECE), "copies and pauses {paced:?}");
    service.signal(Signal::SIGKILL);
    service.ending();
    eventually("the end of the service", || {
        (node.metric("sluice_processes", "critical") == 0.0).then_some(())
    });
    suspend(&node, &clients, true);
    moved(3);
    suspend(&node, &clients, false);
    assert_eq!(moved(4)[2..], [(WHOLE, 0); 2]);
    assert_eq!(first.ask("verify"), "right");
    first.finish().expect_success();
}
