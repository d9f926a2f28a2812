use super::*;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*, compiler_fence};

#[test]
fn one_of_two_threads_sees_the_others_store_although_only_one_has_a_barrier() {
    const ROUNDS: usize = 200;
    assert!(register());
    let words: Vec<[AtomicU32; 2]> = (0..ROUNDS).map(|_| Default::default()).collect();
    let begun = AtomicUsize::new(0);
    // Both begin each round at the same time.
    let meet = |round: usize| {
        begun.fetch_add(1, SeqCst);
        while begun.load(SeqCst) < 2 * (round + 1) {
            std::thread::yield_now();
        }
    };
    let (plain, ordered): (Vec<u32>, Vec<u32>) = std::thread::scope(|scope| {
        let plain = scope.spawn(|| {
            let each = words.iter().enumerate().map(|(round, [mine, other])| {
                meet(round);
                mine.store(1, Relaxed);
                compiler_fence(SeqCst);
                other.load(Relaxed)
            });
            each.collect()
        });
        let each = words.iter().enumerate().map(|(round, [other, mine])| {
            meet(round);
            mine.store(1, SeqCst);
            assert!(all_threads());
            other.load(SeqCst)
        });
        let ordered = each.collect();
        (plain.join().expect("no panic"), ordered)
    });
    assert!(
        plain.iter().zip(&ordered).all(|(plain, ordered)| plain + ordered > 0),
        "neither saw the other's store"
    );
}
