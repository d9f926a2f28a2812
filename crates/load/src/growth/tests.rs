use super::*;

/// Allocates up to a limit; returns (bytes allocated, refusals).
fn grow(limit: u64) -> (u64, u32) {
    let (mut growth, mut held, mut refused) = (Growth::default(), 0, 0);
    while let Some(bytes) = growth.next() {
        if held + bytes <= limit {
            held += bytes;
        } else {
            refused += 1;
            growth.refused();
        }
    }
    (held, refused)
}

#[test]
fn growth_ends_exactly_at_the_limit_after_27_refusals() {
    for limit in [0, 1, (1 << 30) + 12_345, FIRST_CHUNK - 1, FIRST_CHUNK, FIRST_CHUNK + 1] {
        let (held, refused) = grow(limit);
        assert_eq!(held, limit);
        assert_eq!(refused, 27);
    }
}
