use super::*;

#[test]
fn mix_is_the_documented_formula_and_not_idempotent() {
    let mut words = [0, 1, u64::MAX];
    Effect::Mix.apply(&mut words);
    assert_eq!(words[0], 1_442_695_040_888_963_407);
    assert_eq!(words[1], 6_364_136_223_846_793_005 + 1_442_695_040_888_963_407 + 1);
    let once = words;
    Effect::Mix.apply(&mut words);
    assert_ne!(words, once);
}

#[test]
fn add_counts_executions_and_fill_forgets_them() {
    let mut words = [41, u64::MAX];
    Effect::Add.apply(&mut words);
    assert_eq!(words, [42, 0]);
    Effect::Fill(7).apply(&mut words);
    assert_eq!(words, [7, 7]);
}
