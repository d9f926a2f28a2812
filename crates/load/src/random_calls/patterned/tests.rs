use super::word;
use std::collections::BTreeSet;

#[test]
fn blocks_with_different_keys_and_places_of_a_block_have_different_words() {
    let words: BTreeSet<u64> = (1..5).flat_map(|key| (0..1000).map(move |at| word(key << 40, at))).collect();
    assert_eq!(words.len(), 4000);
}
