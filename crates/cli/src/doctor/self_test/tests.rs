use super::*;

/// The result of attempts with these effects of slices, and the number of attempts.
fn tried(effects: &[Effect]) -> (Effect, usize) {
    let mut made = 0;
    let result = until_conclusive(|| {
        let slices = effects[made].clone();
        made += 1;
        SelfTestResult {
            about: SelfTestSubject::now("580.1", "GPU-1"),
            slices,
            stops: Effect::Proven,
            counts: Effect::Proven,
        }
    });
    (result.slices, made)
}

#[test]
fn only_an_inconclusive_test_is_repeated() {
    let unclear = || Effect::inconclusive("few kernels");
    assert_eq!(tried(&[Effect::Proven]), (Effect::Proven, 1));
    assert_eq!(tried(&[Effect::NoEffect]), (Effect::NoEffect, 1));
    assert_eq!(tried(&[unclear(), unclear(), Effect::Proven]), (Effect::Proven, 3));
    assert_eq!(tried(&[unclear(), unclear(), unclear(), Effect::Proven]), (unclear(), 3));
}
