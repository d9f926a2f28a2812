use super::*;

#[test]
fn command_is_decoded_as_encoded_and_the_end_of_input_is_none() {
    let stop = Command::Stop { from_ns: 1, to_ns: 2 };
    let text = serde_json::to_string(&stop).unwrap() + "\n";
    let mut input = text.as_bytes();
    assert_eq!(next_command(&mut input).unwrap(), Some(stop));
    assert_eq!(next_command(&mut input).unwrap(), None);
}

#[test]
fn malformed_command_is_quoted_in_the_error() {
    let why = next_command(&mut &b"unknown\n"[..]).unwrap_err().to_string();
    assert!(why.contains("`unknown`"), "{why}");
}
