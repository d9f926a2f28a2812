use super::*;
use proptest::prelude::*;

fn candidate(client: u64, entitled: u64, had: u64, level: u64) -> Candidate {
    Candidate { client: ClientId(client), entitled, had, level, waiting_since: 0 }
}

#[test]
fn larger_relative_shortfall_goes_first() {
    let small = candidate(1, 100, 50, 0);
    let large = candidate(2, 1_000, 900, 0);
    assert_eq!(small.precedence(&large), Ordering::Less);
}

#[test]
fn client_below_request_goes_first_and_one_exactly_at_it_does_not() {
    let below = candidate(2, 100, 99, u64::MAX);
    let exact = candidate(1, 100, 100, 0);
    assert!(!exact.is_below_request());
    assert_eq!(below.precedence(&exact), Ordering::Less);
}

prop_compose! {
    fn any_candidate()(client in 0u64..4, entitled in 0u64..4, had in 0u64..4, level in 0u64..3, since in 0u64..3)
        -> Candidate {
        Candidate { client: ClientId(client), entitled, had, level, waiting_since: since }
    }
}

proptest! {
    #[test]
    fn precedence_is_a_strict_weak_ordering(a in any_candidate(), b in any_candidate(), c in any_candidate()) {
        prop_assert_eq!(a.precedence(&a), Ordering::Equal);
        prop_assert_eq!(a.precedence(&b), b.precedence(&a).reverse());
        if a.precedence(&b) == Ordering::Less && b.precedence(&c) == Ordering::Less {
            prop_assert_eq!(a.precedence(&c), Ordering::Less);
        }
        if a.precedence(&b) == Ordering::Equal && b.precedence(&c) == Ordering::Equal {
            prop_assert_eq!(a.precedence(&c), Ordering::Equal);
        }
    }
}
