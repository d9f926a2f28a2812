//! Values computed from the answers of NVML and sysfs.

use super::*;
use proptest::prelude::*;

fn map<V: Clone>(pairs: &[(&str, V)]) -> BTreeMap<String, V> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect()
}

fn set(ends: &[&str]) -> BTreeSet<String> {
    ends.iter().map(|end| (*end).to_owned()).collect()
}

#[test]
fn peers_are_at_the_other_end_or_behind_the_same_switch() {
    let addresses = ["a", "b", "c", "d"].map(|gpu| (gpu, format!("place-{gpu}")));
    let ends =
        map(&[("a", set(&["place-b", "switch-1"])), ("c", set(&["switch-1"])), ("d", set(&["switch-2"]))]);
    let of = |gpu| peers(gpu, &map(&addresses), &ends);
    assert_eq!(
        [of("a"), of("c"), of("d")],
        [vec!["b".to_owned(), "c".to_owned()], vec!["a".to_owned()], vec![]]
    );
}

#[test]
fn a_numa_node_is_the_only_one_or_none() {
    assert_eq!(
        [only_bit(&[0, 4]), only_bit(&[3, 0]), only_bit(&[1, 1]), only_bit(&[])],
        [Some(66), None, None, None]
    );
    assert_eq!([parse_numa("1\n"), parse_numa("-1\n"), parse_numa("")], [Some(1), None, None]);
}

#[test]
fn addresses_are_as_in_sysfs() {
    assert_eq!([address(0, 0x18, 0), address(0x1_0000, 0xff, 0x1f)], ["0000:18:00.0", "10000:ff:1f.0"]);
}

proptest! {
    #[test]
    fn single_bit_is_found_at_any_position(bit in 0..256u32) {
        let mut words = [0; NODE_WORDS];
        words[usize::try_from(bit / 64).unwrap()] = 1 << (bit % 64);
        prop_assert_eq!(only_bit(&words), Some(bit));
    }

    #[test]
    fn parse_numa_accepts_any_text(text in ".{0,20}") {
        let _ = parse_numa(&text);
    }
}
