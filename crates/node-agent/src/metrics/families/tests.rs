//! Tests of `families.rs`.

use super::*;

#[test]
fn labels_in_another_order_keep_their_values_and_other_names_are_refused() {
    let mut families = Families::default();
    families.gauge("levels", "help", &[("gpu", "a"), ("node", "n")]).unwrap().set(1.0);
    families.gauge("levels", "help", &[("node", "m"), ("gpu", "b")]).unwrap().set(2.0);
    families.counter("turns", "help", &[("gpu", "a"), ("node", "n")]).unwrap().inc_by(3.0);
    families.counter("turns", "help", &[("node", "n"), ("gpu", "a")]).unwrap().inc_by(4.0);
    for labels in [&[("gpu", "a"), ("pod", "p")][..], &[("gpu", "a")], &[("gpu", "a"), ("gpu", "b")]] {
        assert!(families.gauge("levels", "help", labels).is_err(), "{labels:?}");
        assert!(families.counter("turns", "help", labels).is_err(), "{labels:?}");
    }
    let text = prometheus::TextEncoder::new().encode_to_string(&families.registry.gather()).unwrap();
    let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let expected =
        ["levels{gpu=\"a\",node=\"n\"} 1", "levels{gpu=\"b\",node=\"m\"} 2", "turns{gpu=\"a\",node=\"n\"} 7"];
    assert_eq!(samples, expected);
}
