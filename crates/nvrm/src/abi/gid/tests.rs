use super::*;

#[test]
fn uuid_is_decoded_as_encoded_and_malformed_answers_are_none() {
    let name = "GPU-5f1c2a5b-0b6b-5d2c-6a4e-4f0b9d7e3f1c";
    assert_eq!(decode(&encode(name)), Some(name));
    assert_eq!(decode(&encode(&"x".repeat(500))).map(str::len), Some(LEN - TEXT_AT - 1));
    assert_eq!(decode(&query()), None);
    let mut long = encode(name);
    put32(&mut long, LENGTH_AT, 257);
    assert_eq!(decode(&long), None);
    put32(&mut long, LENGTH_AT, u32::MAX);
    assert_eq!(decode(&long), None);
    assert_eq!(decode(&[]), None);
}
