//! The longest name that each type of request can carry, and one byte more.

use sluice_comm::{Channel, FrameError, Name, NameError, Request, RequestBody, RequestKind};

/// Every type of request with the longest name that leaves room for its payload, payload filled to the last byte.
const MAXIMA: [(RequestBody, usize); 8] = [
    (RequestBody::Quota { overuse_ms: 1e300, next_burst_ms: f64::MAX }, 47),
    (RequestBody::MemLimit, 63),
    (RequestBody::MemUpdate { bytes: u64::MAX, allocate: true }, 51),
    (RequestBody::Attach { version: u32::MAX, channel: Channel::Token, used_bytes: u64::MAX }, 47),
    (RequestBody::Yield { used_ms: 1e300, overuse_ms: f64::MAX }, 47),
    (RequestBody::Detach, 63),
    (RequestBody::Contexts { version: u32::MAX }, 59),
    (RequestBody::OwnProcess { pid: u32::MAX }, 59),
];

#[test]
fn table_covers_every_type() {
    assert_eq!(MAXIMA.map(|(body, _)| body.kind()), RequestKind::ALL);
    assert_eq!(MAXIMA.map(|(_, max)| max), RequestKind::ALL.map(RequestKind::max_name_len));
}

#[test]
fn name_at_the_maximum_reads_back() {
    for (body, max) in MAXIMA {
        let request = Request { name: Name::new(&"x".repeat(max)).unwrap(), id: i32::MIN, body };
        let frame = request.encode().unwrap();
        assert_eq!(Request::decode(&frame), Ok(request), "{:?}", body.kind());
    }
}

#[test]
fn name_one_byte_longer_is_refused_with_its_length() {
    for (body, max) in MAXIMA.into_iter().filter(|(_, max)| *max < Name::MAX) {
        let kind = body.kind();
        let request = Request { name: Name::new(&"x".repeat(max + 1)).unwrap(), id: 0, body };
        let error = request.encode().unwrap_err();
        assert_eq!(error, FrameError::NameTooLong { kind, len: max + 1 });
        assert_eq!(
            error.to_string(),
            format!("client name has {} bytes, a {kind:?} request has room for {max}", max + 1)
        );
    }
}

#[test]
fn frame_whose_name_displaces_the_payload_is_refused() {
    for kind in RequestKind::ALL.into_iter().filter(|kind| kind.max_name_len() < Name::MAX) {
        let len = kind.max_name_len() + 1;
        let mut frame = [0; 80];
        frame[0] = u8::try_from(len).unwrap();
        frame[8..8 + len].fill(b'x');
        frame[13 + len..17 + len].copy_from_slice(&(kind as u32).to_le_bytes());
        assert_eq!(Request::decode(&frame), Err(FrameError::NameTooLong { kind, len }));
    }
}

#[test]
fn name_of_64_bytes_is_refused() {
    let error = Name::new(&"x".repeat(64)).unwrap_err();
    assert_eq!(error, NameError::TooLong(64));
    assert_eq!(error.to_string(), "client name has 64 bytes, expected 1 to 63");
}
