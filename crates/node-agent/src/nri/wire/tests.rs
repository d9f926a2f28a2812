use super::*;
use proptest::prelude::*;

fn message(connection: Connection, stream: u32, kind: Kind, payload: &[u8]) -> Message {
    Message { connection, stream, kind, payload: payload.to_vec() }
}

#[test]
fn message_has_the_bytes_of_the_specification() {
    let bytes = message(Connection::Runtime, 1, Kind::Request, b"ab").encode();
    assert_eq!(bytes, [0, 0, 0, 2, 0, 0, 0, 12, 0, 0, 0, 2, 0, 0, 0, 1, 1, 0, b'a', b'b']);
}

#[test]
fn frames_of_unknown_connections_are_skipped() {
    let mut bytes = vec![0, 0, 0, 9, 0, 0, 0, 1, 7];
    let wanted = message(Connection::Plugin, 3, Kind::Request, b"");
    bytes.extend(wanted.encode());
    assert_eq!(Decoder::default().push(&bytes), Ok(vec![wanted]));
}

#[test]
fn impossible_lengths_and_kinds_are_refused() {
    let long = [0, 0, 0, 1, 0xff, 0, 0, 0];
    assert_eq!(Decoder::default().push(&long), Err(WireError::LongFrame(0xff00_0000)));
    let long = [0, 0, 0, 1, 0, 0, 0, 10, 0, 0x40, 0, 1, 0, 0, 0, 1, 1, 0];
    assert_eq!(Decoder::default().push(&long), Err(WireError::LongMessage(LONGEST_PAYLOAD + 1)));
    let data = [0, 0, 0, 1, 0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0, 1, 3, 0];
    assert_eq!(Decoder::default().push(&data), Err(WireError::UnknownKind(3)));
}

fn any_message() -> impl Strategy<Value = Message> {
    let connection = prop_oneof![Just(Connection::Plugin), Just(Connection::Runtime)];
    let kind = prop_oneof![Just(Kind::Request), Just(Kind::Response)];
    let payload = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..20),
        // Longer than one written frame.
        proptest::collection::vec(any::<u8>(), 4080..9000),
    ];
    (connection, any::<u32>(), kind, payload).prop_map(|(connection, stream, kind, payload)| Message {
        connection,
        stream,
        kind,
        payload,
    })
}

proptest! {
    #[test]
    fn messages_are_read_as_written_however_the_bytes_are_divided(
        messages in proptest::collection::vec(any_message(), 1..5),
        part in 1usize..5000,
    ) {
        let bytes: Vec<u8> = messages.iter().flat_map(Message::encode).collect();
        let mut decoder = Decoder::default();
        let mut read = Vec::new();
        for part in bytes.chunks(part) {
            read.extend(decoder.push(part).unwrap());
        }
        for connection in [Connection::Plugin, Connection::Runtime] {
            let of = |all: &[Message]| -> Vec<Message> {
                all.iter().filter(|message| message.connection == connection).cloned().collect()
            };
            prop_assert_eq!(of(&read), of(&messages));
        }
    }

    #[test]
    fn any_bytes_are_messages_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _outcome = Decoder::default().push(&bytes);
    }
}
