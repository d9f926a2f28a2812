//! The alternative to slots by the clock: a ledger that leads the managers of the other GPUs.

use super::manager_is_away;
use super::node::{Leader, Node, job};
use crate::simulated_gpu::{Change, MS, S, Scheduling};

/// The figures of docs/design/gangs.md for the alternative. In half of the rows a manager, of the leader if there is one, stops for 2 of 5 s.
#[test]
#[ignore = "prints figures"]
fn figures_of_slots_by_the_clock_and_of_a_leading_ledger() {
    for message_us in [None, Some(0), Some(100), Some(500)] {
        for stops in [false, true] {
            for gpus in [2, 4, 8] {
                let all: Vec<usize> = (0..gpus).collect();
                let mut node =
                    Node::new(gpus, Scheduling::Hardware, &[job("a", 0.3, &all), job("b", 0.7, &all)]);
                node.step_ns = MS / 20;
                node.exchanges = message_us.is_none();
                let leader = |us: u64| Leader::with_messages_of(us * 1_000);
                node.leader = message_us.map(leader);
                if stops {
                    manager_is_away(&mut node.gpus[0], 4 * S, 6 * S);
                    node.gpus[0].schedule(6 * S, Change::ManagerResumes);
                }
                let progress = node.progress(3 * S, 8 * S);
                let sum: f64 = progress.iter().sum();
                println!("{gpus} GPUs, messages {message_us:?} us, stop {stops}: {progress:.3?}, {sum:.3}");
            }
        }
    }
}
