//! Properties of the codec over arbitrary values, bytes and fragmentations.

use proptest::collection::vec;
use proptest::prelude::*;
use sluice_comm::attach::{AttachPayload, ContextHandles};
use sluice_comm::{
    AttachStatus, Channel, FrameReader, Name, REQUEST_LEN, RESPONSE_LEN, Request, RequestBody, RequestKind,
    Response, ResponseBody,
};

fn config() -> ProptestConfig {
    // Miri runs a thousand times slower and cannot write a file of failures.
    let cases = if cfg!(miri) { 4 } else { 1024 };
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

fn time() -> impl Strategy<Value = f64> {
    prop_oneof![0.0..1e6, 0.0..f64::MAX, Just(0.0), Just(f64::MIN_POSITIVE)]
}

fn body() -> impl Strategy<Value = RequestBody> {
    let channel = prop_oneof![Just(Channel::Memory), Just(Channel::Token)];
    prop_oneof![
        (time(), time())
            .prop_map(|(overuse_ms, next_burst_ms)| RequestBody::Quota { overuse_ms, next_burst_ms }),
        Just(RequestBody::MemLimit),
        any::<(u64, bool)>().prop_map(|(bytes, allocate)| RequestBody::MemUpdate { bytes, allocate }),
        (any::<u32>(), channel, any::<u64>()).prop_map(|(version, channel, used_bytes)| {
            RequestBody::Attach { version, channel, used_bytes }
        }),
        (time(), time()).prop_map(|(used_ms, overuse_ms)| RequestBody::Yield { used_ms, overuse_ms }),
        Just(RequestBody::Detach),
        any::<u32>().prop_map(|version| RequestBody::Contexts { version }),
        any::<u32>().prop_map(|pid| RequestBody::OwnProcess { pid }),
    ]
}

/// A request with any name that its type has room for.
fn request() -> impl Strategy<Value = Request> {
    body().prop_flat_map(|body| {
        let name = vec(b'!'..=b'~', 1..=body.kind().max_name_len());
        (name, any::<i32>()).prop_map(move |(name, id)| Request {
            name: Name::from_bytes(&name).unwrap(),
            id,
            body,
        })
    })
}

fn response() -> impl Strategy<Value = (RequestKind, Response)> {
    let status = prop_oneof![
        Just(AttachStatus::Ok),
        Just(AttachStatus::UnknownClient),
        Just(AttachStatus::WrongVersion),
        Just(AttachStatus::BadPayload),
        Just(AttachStatus::NotAllowed),
        Just(AttachStatus::Pending),
        Just(AttachStatus::NoRoom)
    ];
    let answer = prop_oneof![
        time().prop_map(|quota_ms| (RequestKind::Quota, ResponseBody::Quota { quota_ms })),
        any::<(u64, u64)>()
            .prop_map(|(used, limit)| (RequestKind::MemLimit, ResponseBody::MemLimit { used, limit })),
        any::<bool>().prop_map(|granted| (RequestKind::MemUpdate, ResponseBody::MemUpdate { granted })),
        (status, any::<u32>()).prop_map(|(status, page_version)| {
            (RequestKind::Attach, ResponseBody::Attach { status, page_version })
        }),
        Just((RequestKind::Detach, ResponseBody::Detach)),
        any::<bool>().prop_map(|own| (RequestKind::OwnProcess, ResponseBody::OwnProcess { own })),
    ];
    (any::<i32>(), answer).prop_map(|(id, (kind, body))| (kind, Response { id, body }))
}

/// 80 bytes that are often almost a frame: the interesting refusals lie behind a plausible header.
fn nearly_a_frame() -> impl Strategy<Value = [u8; REQUEST_LEN]> {
    let broken = (request(), vec((0..REQUEST_LEN, any::<u8>()), 0..4)).prop_map(|(request, changes)| {
        let mut frame = request.encode().unwrap();
        changes.into_iter().for_each(|(at, byte)| frame[at] = byte);
        frame
    });
    prop_oneof![any::<[u8; REQUEST_LEN]>(), broken]
}

fn payload() -> impl Strategy<Value = AttachPayload> {
    let context = (0..8_u32, any::<[u32; 3]>(), vec(any::<u32>(), 0..=64));
    let context = context.prop_map(|(descriptor, handles, channels)| {
        let [client, subdevice, channel_group] = handles;
        ContextHandles { descriptor, client, subdevice, channel_group, channels }
    });
    (any::<(u32, u32, [u8; 16])>(), vec(context, 0..=8)).prop_map(|(device, contexts)| {
        let (pid, device_ordinal, device_uuid) = device;
        AttachPayload { pid, device_ordinal, device_uuid, contexts }
    })
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_frame_decodes_to_itself(request in request(), (kind, response) in response()) {
        prop_assert_eq!(Request::decode(&request.encode().unwrap()), Ok(request));
        prop_assert_eq!(Response::decode(&response.encode(), kind), Ok(response));
    }

    #[test]
    fn any_80_bytes_are_a_request_or_refused(frame in nearly_a_frame()) {
        if let Ok(request) = Request::decode(&frame) {
            let again = Request::decode(&request.encode().unwrap());
            prop_assert_eq!(again, Ok(request));
        }
    }

    #[test]
    fn any_40_bytes_are_an_answer_or_refused(frame in any::<[u8; RESPONSE_LEN]>()) {
        for kind in RequestKind::ALL {
            if let Ok(response) = Response::decode(&frame, kind) {
                prop_assert_eq!(Response::decode(&response.encode(), kind), Ok(response));
            }
        }
    }

    #[test]
    fn frames_come_out_whole_whatever_the_fragmentation(
        sent in vec(nearly_a_frame(), 0..8),
        rest in 0..REQUEST_LEN,
        pieces in vec(1..2 * REQUEST_LEN, 1..64),
    ) {
        let mut stream: Vec<u8> = sent.concat();
        stream.extend(vec![7; rest]);
        let mut frames = FrameReader::<REQUEST_LEN>::new();
        let mut received = Vec::new();
        let mut unread = stream.as_slice();
        // Each piece is what one read finds in the socket.
        for piece in pieces.into_iter().cycle() {
            let mut piece = unread.split_off(..piece.min(unread.len())).unwrap();
            if piece.is_empty() {
                break;
            }
            while !piece.is_empty() {
                let spare = frames.spare();
                prop_assert!(!spare.is_empty(), "an empty buffer would read as the end of the stream");
                let read = spare.len().min(piece.len());
                spare[..read].copy_from_slice(piece.split_off(..read).unwrap());
                frames.filled(read);
                received.extend(frames.next());
            }
        }
        prop_assert_eq!(received, sent);
        prop_assert_eq!(frames.is_mid_frame(), rest > 0);
    }

    #[test]
    fn an_attach_payload_decodes_to_itself(payload in payload()) {
        prop_assert_eq!(AttachPayload::decode(&payload.encode()), Ok(payload));
    }

    #[test]
    fn an_attach_payload_cut_short_or_extended_is_refused(payload in payload(), cut in any::<prop::sample::Index>()) {
        let mut bytes = payload.encode();
        prop_assert!(AttachPayload::decode(&bytes[..cut.index(bytes.len())]).is_err());
        bytes.push(0);
        prop_assert!(AttachPayload::decode(&bytes).is_err());
    }

    #[test]
    fn any_bytes_are_an_attach_payload_or_refused(
        payload in payload(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        noise in vec(any::<u8>(), 0..256),
    ) {
        let mut bytes = payload.encode();
        let len = bytes.len();
        changes.into_iter().for_each(|(at, byte)| bytes[at.index(len)] = byte);
        for bytes in [bytes, noise] {
            if let Ok(payload) = AttachPayload::decode(&bytes) {
                match bytes[4] {
                    1 => prop_assert!(payload.contexts.is_empty()),
                    2 => prop_assert!(payload.encode_second() == bytes),
                    _ => prop_assert!(payload.encode() == bytes),
                }
            }
        }
    }
}
