//! The frames that the original system was recorded to send, and names of every awkward length.

use sluice_comm::{AttachStatus, Channel, Name, Request, RequestBody, RequestKind, Response, ResponseBody};

/// Bytes written as hex digits, spaces ignored, zero-padded to a frame.
fn frame<const N: usize>(hex: &str) -> [u8; N] {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let mut frame = [0; N];
    for (slot, pair) in frame.iter_mut().zip(digits.chunks(2)) {
        *slot = u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    }
    frame
}

fn request(name: &str, id: i32, body: RequestBody) -> Request {
    Request { name: Name::new(name).unwrap(), id, body }
}

#[track_caller]
fn is_request(hex: &str, request: Request) {
    let bytes = frame(hex);
    assert_eq!(request.encode(), Ok(bytes), "sent");
    assert_eq!(Request::decode(&bytes), Ok(request), "received");
}

#[track_caller]
fn is_response(hex: &str, kind: RequestKind, response: Response) {
    let bytes = frame(hex);
    assert_eq!(response.encode(), bytes, "sent");
    assert_eq!(Response::decode(&bytes, kind), Ok(response), "received");
}

#[test]
fn recorded_requests_are_sent_and_received_byte_for_byte() {
    is_request(
        "0700000000000000 636c69656e743100 0000000000000000 000000000000f83f 0000000000c07240",
        request("client1", 0, RequestBody::Quota { overuse_ms: 1.5, next_burst_ms: 300.0 }),
    );
    is_request(
        "0700000000000000 636c69656e743100 0100000001000000",
        request("client1", 1, RequestBody::MemLimit),
    );
    is_request(
        "0700000000000000 636c69656e743100 0200000002000000 0000004000000000 0100000000000000",
        request("client1", 2, RequestBody::MemUpdate { bytes: 1_073_741_824, allocate: true }),
    );
    is_request(
        "0700000000000000 636c69656e743100 0300000002000000 0010000000000000",
        request("client1", 3, RequestBody::MemUpdate { bytes: 4096, allocate: false }),
    );
}

#[test]
fn recorded_answers_are_sent_and_received_byte_for_byte() {
    is_response(
        "07000000 0000000000c07240",
        RequestKind::Quota,
        Response { id: 7, body: ResponseBody::Quota { quota_ms: 300.0 } },
    );
    is_response(
        "08000000 0000000000000000 0000004000000000",
        RequestKind::MemLimit,
        Response { id: 8, body: ResponseBody::MemLimit { used: 0, limit: 1_073_741_824 } },
    );
    is_response(
        "09000000 01000000",
        RequestKind::MemUpdate,
        Response { id: 9, body: ResponseBody::MemUpdate { granted: true } },
    );
}

#[test]
fn extension_requests_have_the_documented_layout() {
    is_request(
        "0100000000000000 61 00 ffffffff 10000000 01000000 01000000 0000004000000000",
        request("a", -1, RequestBody::Attach { version: 1, channel: Channel::Token, used_bytes: 1 << 30 }),
    );
    is_request(
        "0100000000000000 61 00 05000000 11000000 000000000000f83f 0000000000c07240",
        request("a", 5, RequestBody::Yield { used_ms: 1.5, overuse_ms: 300.0 }),
    );
    is_request("0100000000000000 61 00 07000000 13000000", request("a", 7, RequestBody::Detach));
    is_request(
        "0100000000000000 61 00 08000000 14000000 01000000",
        request("a", 8, RequestBody::Contexts { version: 1 }),
    );
    is_request(
        "0100000000000000 61 00 09000000 15000000 fa000000",
        request("a", 9, RequestBody::OwnProcess { pid: 250 }),
    );
}

#[test]
fn extension_answers_have_the_documented_layout() {
    is_response(
        "02000000 03000000 01000000",
        RequestKind::Attach,
        Response { id: 2, body: ResponseBody::Attach { status: AttachStatus::BadPayload, page_version: 1 } },
    );
    is_response(
        "04000000 05000000 03000000",
        RequestKind::Attach,
        Response { id: 4, body: ResponseBody::Attach { status: AttachStatus::Pending, page_version: 3 } },
    );
    let own = Response { id: 5, body: ResponseBody::OwnProcess { own: true } };
    is_response("05000000 01000000", RequestKind::OwnProcess, own);
    is_response("03000000", RequestKind::Detach, Response { id: 3, body: ResponseBody::Detach });
}

#[test]
fn fields_follow_names_of_any_length_without_alignment() {
    for n in [1, 7, 8, 47] {
        let name = "n".repeat(n);
        let request =
            request(&name, 0x0102_0304, RequestBody::Quota { overuse_ms: 1.5, next_burst_ms: 300.0 });
        let bytes = request.encode().unwrap();
        assert_eq!(bytes[..8], (n as u64).to_le_bytes(), "n = {n}: length");
        assert_eq!(bytes[8..8 + n], *name.as_bytes(), "n = {n}: name");
        assert_eq!(bytes[8 + n], 0, "n = {n}: terminator");
        assert_eq!(bytes[9 + n..13 + n], [4, 3, 2, 1], "n = {n}: id");
        assert_eq!(bytes[13 + n..17 + n], [0; 4], "n = {n}: type");
        assert_eq!(bytes[17 + n..25 + n], 1.5_f64.to_le_bytes(), "n = {n}: overuse");
        assert_eq!(bytes[25 + n..33 + n], 300_f64.to_le_bytes(), "n = {n}: next burst");
        assert!(bytes[33 + n..].iter().all(|byte| *byte == 0), "n = {n}: padding");
        assert_eq!(Request::decode(&bytes), Ok(request), "n = {n}");
    }
}
