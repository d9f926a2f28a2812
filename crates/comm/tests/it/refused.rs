//! Frames that break the protocol are refused, and the error names the field, the value found and the values expected.

use sluice_comm::{FrameError, Name, NameError, Request, RequestBody, RequestKind, Response, ResponseBody};

/// Offset of the fields behind the name of [`good`].
const AFTER_NAME: usize = 8 + 7;

fn good(body: RequestBody) -> [u8; 80] {
    Request { name: Name::new("client1").unwrap(), id: 4, body }.encode().unwrap()
}

fn patched(body: RequestBody, at: usize, bytes: &[u8]) -> Result<Request, FrameError> {
    let mut frame = good(body);
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    Request::decode(&frame)
}

#[test]
fn name_length_that_no_frame_can_hold_is_refused() {
    for len in [0, 64, 80, 1 << 32, u64::MAX] {
        let refused = patched(RequestBody::MemLimit, 0, &len.to_le_bytes());
        assert_eq!(refused, Err(FrameError::NameLength(len)));
    }
    let error = FrameError::NameLength(4096);
    assert_eq!(error.to_string(), "name length field says 4096, expected 1 to 63");
}

#[test]
fn name_without_its_nul_is_refused() {
    let refused = patched(RequestBody::MemLimit, AFTER_NAME, b"x");
    assert_eq!(refused, Err(FrameError::NotTerminated { at: AFTER_NAME, byte: b'x' }));
    assert_eq!(
        refused.unwrap_err().to_string(),
        "byte 0x78 at offset 15 after the client name, expected the NUL that ends it"
    );
}

#[test]
fn name_that_is_not_printable_is_refused() {
    for byte in [0, b' ', b'\n', 0x7f, 0xc3] {
        let refused = patched(RequestBody::MemLimit, 10, &[byte]);
        assert_eq!(refused, Err(FrameError::Name(NameError::NotPrintable { at: 2, byte })));
    }
}

#[test]
fn an_unknown_type_is_refused() {
    for number in [3, 15, 22, u32::MAX] {
        let refused = patched(RequestBody::MemLimit, AFTER_NAME + 5, &number.to_le_bytes());
        assert_eq!(refused, Err(FrameError::UnknownType(number)));
    }
    assert_eq!(FrameError::UnknownType(3).to_string(), "request type 3, expected 0 to 2 or 16 to 21");
}

#[test]
fn invalid_time_is_neither_sent_nor_received() {
    let quota = RequestBody::Quota { overuse_ms: 1.0, next_burst_ms: 2.0 };
    let handed_back = RequestBody::Yield { used_ms: 1.0, overuse_ms: 2.0 };
    for value in [f64::INFINITY, f64::NEG_INFINITY, -1e-9, -f64::MAX] {
        for (body, offset, field) in [
            (quota, 9, "overuse_ms"),
            (quota, 17, "next_burst_ms"),
            (handed_back, 9, "used_ms"),
            (handed_back, 17, "overuse_ms"),
        ] {
            let refused = patched(body, AFTER_NAME + offset, &value.to_le_bytes());
            assert_eq!(refused, Err(FrameError::BadTime { field, value }));
        }
    }
    let refused = patched(quota, AFTER_NAME + 9, &f64::NAN.to_le_bytes());
    assert_eq!(
        refused.unwrap_err().to_string(),
        "overuse_ms is NaN ms, expected a finite number that is not negative"
    );
    for bad in [f64::NAN, f64::INFINITY, -1.0] {
        for body in [
            RequestBody::Quota { overuse_ms: bad, next_burst_ms: 0.0 },
            RequestBody::Quota { overuse_ms: 0.0, next_burst_ms: bad },
            RequestBody::Yield { used_ms: bad, overuse_ms: 0.0 },
            RequestBody::Yield { used_ms: 0.0, overuse_ms: bad },
        ] {
            let request = Request { name: Name::new("a").unwrap(), id: 0, body };
            assert!(matches!(request.encode(), Err(FrameError::BadTime { .. })), "{body:?}");
        }
    }
}

#[test]
fn is_allocate_other_than_0_or_1_is_refused() {
    let charge = RequestBody::MemUpdate { bytes: 1, allocate: true };
    for value in [2, -1, i32::MAX] {
        let refused = patched(charge, AFTER_NAME + 17, &value.to_le_bytes());
        assert_eq!(refused, Err(FrameError::BadFlag { field: "is_allocate", value }));
    }
}

#[test]
fn channel_that_does_not_exist_is_refused() {
    let attach = RequestBody::Attach { version: 1, channel: sluice_comm::Channel::Memory, used_bytes: 0 };
    let refused = patched(attach, AFTER_NAME + 13, &2_u32.to_le_bytes());
    assert_eq!(refused, Err(FrameError::UnknownChannel(2)));
}

#[test]
fn bytes_behind_the_payload_are_not_looked_at() {
    let untouched = Request::decode(&good(RequestBody::MemLimit));
    assert!(untouched.is_ok());
    assert_eq!(patched(RequestBody::MemLimit, 79, &[0xff]), untouched);
}

fn answer(kind: RequestKind, fields: &[u8]) -> Result<ResponseBody, FrameError> {
    let mut frame = [0; 40];
    frame[4..4 + fields.len()].copy_from_slice(fields);
    Response::decode(&frame, kind).map(|response| response.body)
}

#[test]
fn an_answer_that_makes_no_sense_is_refused() {
    for value in [f64::INFINITY, -1.0] {
        assert_eq!(
            answer(RequestKind::Quota, &value.to_le_bytes()),
            Err(FrameError::BadTime { field: "quota_ms", value })
        );
    }
    assert!(answer(RequestKind::Quota, &f64::NAN.to_le_bytes()).is_err());
    assert_eq!(
        answer(RequestKind::MemUpdate, &2_i32.to_le_bytes()),
        Err(FrameError::BadFlag { field: "verdict", value: 2 })
    );
    assert_eq!(answer(RequestKind::Attach, &7_u32.to_le_bytes()), Err(FrameError::UnknownStatus(7)));
    assert_eq!(answer(RequestKind::Detach, &1_u32.to_le_bytes()), Err(FrameError::UnknownStatus(1)));
    for kind in [RequestKind::Yield, RequestKind::Contexts] {
        assert_eq!(answer(kind, &[]), Err(FrameError::NotAnswered(kind)));
    }
}

#[test]
fn invalid_quota_is_sent_as_no_grant() {
    for quota_ms in [f64::NAN, f64::INFINITY, -1.0] {
        let response = Response { id: 1, body: ResponseBody::Quota { quota_ms } };
        let sent = Response::decode(&response.encode(), RequestKind::Quota).unwrap();
        assert_eq!(sent.body, ResponseBody::Quota { quota_ms: 0.0 });
    }
}
