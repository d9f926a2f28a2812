use super::*;

#[test]
fn record_is_one_line_and_is_decoded_as_encoded() {
    let record = Record::BeFinal {
        counts: BeCounts { launches: 7, denied: 2, ..BeCounts::default() },
        buffer: BufferState::of(&[1, 2, 3]),
        errors: vec!["cuEventSynchronize: 719".to_owned()],
    };
    let mut out = Vec::new();
    write_line(&record, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert_eq!(text.matches('\n').count(), 1);
    assert_eq!(Record::parse(text.trim()).unwrap(), record);
}

#[test]
fn buffer_state_matches_its_count_of_launches_and_no_other() {
    let words: Vec<u64> =
        (0..64).map(|i| crate::kernel::mix(crate::kernel::mix(crate::kernel::initial(i), i), i)).collect();
    let state = BufferState::of(&words);
    assert!(state.is_after(2));
    assert!(!state.is_after(1) && !state.is_after(3));
}
