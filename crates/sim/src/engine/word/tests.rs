use super::*;

#[test]
fn words_are_compared_modulo_their_size() {
    let holds = |compare, is_wide, value, word| Condition { address: 0, value, compare, is_wide }.holds(word);
    assert!(holds(Compare::AtLeast, false, 5, 5) && holds(Compare::AtLeast, false, 5, 6));
    assert!(!holds(Compare::AtLeast, false, 5, 4));
    assert!(holds(Compare::AtLeast, false, 0xffff_fff0, 3), "the comparison is modulo the word's size");
    assert!(!holds(Compare::AtLeast, true, 0xffff_fff0, 3));
    assert!(holds(Compare::Equal, false, 7, 0x1_0000_0007) && !holds(Compare::Equal, true, 7, 0x1_0000_0007));
    assert!(holds(Compare::And, false, 6, 4) && !holds(Compare::And, false, 6, 1));
    assert!(holds(Compare::Nor, false, 6, 1) && !holds(Compare::Nor, false, u64::MAX - 1, 1));
}
