use super::Random;

fn words(mut random: Random) -> Vec<u64> {
    (0..8).map(|_| random.word()).collect()
}

#[test]
fn same_seed_gives_same_numbers_and_threads_differ() {
    assert_eq!(words(Random::new(7)), words(Random::new(7)));
    assert_ne!(words(Random::new(7)), words(Random::new(8)));
    assert_ne!(words(Random::new(7).split(0)), words(Random::new(7).split(1)));
}

#[test]
fn bounds_hold_for_empty_lists_and_large_ones() {
    let mut random = Random::new(1);
    assert_eq!((random.below(0), random.index(0)), (0, 0));
    assert!((0..1000).all(|_| random.below(3) < 3));
}
