//! The attach payload's layout, and payloads that are refused.

use sluice_comm::attach::{
    ATTACH_VERSION, AttachError, AttachPayload, ContextHandles, MAX_CHANNELS, MAX_CONTEXTS, MAX_DESCRIPTORS,
    MAX_LEN, PAYLOAD_VERSION,
};

fn payload() -> AttachPayload {
    AttachPayload {
        pid: 0x0102,
        device_ordinal: 3,
        device_uuid: *b"0123456789abcdef",
        contexts: vec![ContextHandles {
            descriptor: 5,
            client: 0xc1d0_0001,
            subdevice: 0x5c00_0003,
            channel_group: 0x5c00_0015,
            channels: vec![0x5c00_0016, 0x5c00_0019],
        }],
    }
}

/// The payload with one 32-bit word replaced.
fn patched(word: usize, value: u32) -> Result<AttachPayload, AttachError> {
    let mut bytes = payload().encode();
    bytes[4 * word..4 * word + 4].copy_from_slice(&value.to_le_bytes());
    AttachPayload::decode(&bytes)
}

#[test]
fn payload_has_the_documented_layout() {
    let mut expected = b"SLAT\x03\0\0\0\x02\x01\0\0\x03\0\0\x000123456789abcdef".to_vec();
    for word in [1, 5, 0xc1d0_0001_u32, 0x5c00_0003, 0x5c00_0015, 2, 0x5c00_0016, 0x5c00_0019] {
        expected.extend(word.to_le_bytes());
    }
    assert_eq!(payload().encode(), expected);
    assert_eq!(AttachPayload::decode(&expected), Ok(payload()));
    expected[4] = 2;
    assert_eq!(payload().encode_second(), expected);
    assert_eq!(AttachPayload::decode(&expected), Ok(payload()));
}

#[test]
fn other_bytes_and_other_versions_are_refused_by_name() {
    assert_eq!(patched(0, 0x464c_457f), Err(AttachError::Magic(0x464c_457f)));
    for version in [0, 4, u32::MAX] {
        assert_eq!(patched(1, version), Err(AttachError::Version(version)));
    }
    let error = AttachError::Version(4);
    assert_eq!(error.to_string(), "attach payload has version 4, expected 1 to 3");
    assert_eq!((ATTACH_VERSION, PAYLOAD_VERSION), (1, 3));
}

#[test]
fn payload_of_the_first_version_is_read_without_its_contexts() {
    let mut first = b"SLAT\x01\0\0\0\x02\x01\0\0\x03\0\0\x000123456789abcdef".to_vec();
    let without = AttachPayload { contexts: Vec::new(), ..payload() };
    assert_eq!(payload().encode_first(), [first.as_slice(), &[0; 4]].concat());
    assert_eq!(AttachPayload::decode(&payload().encode_first()), Ok(without.clone()));
    for word in [1, 0xc1d0_0001_u32, 0x5c00_0003, 0x5c00_0015, 2, 0x5c00_0016, 0x5c00_0019] {
        first.extend(word.to_le_bytes());
    }
    assert_eq!(AttachPayload::decode(&first), Ok(without));
    let short = AttachPayload::decode(&first[..first.len() - 1]);
    assert_eq!(short, Err(AttachError::Length { found: first.len() - 1, expected: first.len() }));
    assert!(AttachPayload::decode(&[first.as_slice(), &[0]].concat()).is_err());
}

#[test]
fn descriptor_above_the_maximum_is_refused() {
    assert!(patched(9, 7).is_ok());
    let error = patched(9, 8).unwrap_err();
    assert_eq!(error, AttachError::Descriptor(8));
    assert_eq!(
        error.to_string(),
        "attach payload has a context on control descriptor 8, expected less than 8"
    );
}

#[test]
fn payload_counts_its_descriptors() {
    let mut payload = payload();
    assert_eq!(payload.descriptors(), 6);
    payload.contexts.push(ContextHandles { descriptor: 2, ..payload.contexts[0].clone() });
    assert_eq!(payload.descriptors(), 6);
    payload.contexts.clear();
    assert_eq!(payload.descriptors(), 0);
    assert_eq!(MAX_DESCRIPTORS, 8);
}

#[test]
fn counts_beyond_the_maximum_are_refused_before_anything_is_allocated_for_them() {
    let error = patched(8, u32::MAX).unwrap_err();
    assert_eq!(error, AttachError::TooMany { what: "contexts", found: u32::MAX as usize, max: MAX_CONTEXTS });
    let error = patched(13, 65).unwrap_err();
    assert_eq!(error, AttachError::TooMany { what: "channels", found: 65, max: MAX_CHANNELS });
}

#[test]
fn length_that_does_not_fit_the_counts_is_refused() {
    let bytes = payload().encode();
    let len = bytes.len();
    let short = AttachPayload::decode(&bytes[..len - 1]);
    assert_eq!(short, Err(AttachError::Length { found: len - 1, expected: len }));
    let long = AttachPayload::decode(&[bytes.as_slice(), &[0]].concat());
    assert_eq!(long, Err(AttachError::Length { found: len + 1, expected: len }));
    assert_eq!(AttachPayload::decode(&[]), Err(AttachError::Length { found: 0, expected: 8 }));
}

#[test]
fn largest_payload_is_accepted() {
    let mut largest = payload();
    largest.contexts[0].channels = vec![1; MAX_CHANNELS];
    largest.contexts = vec![largest.contexts[0].clone(); MAX_CONTEXTS];
    let bytes = largest.encode();
    assert_eq!(bytes.len(), MAX_LEN);
    assert_eq!(AttachPayload::decode(&bytes), Ok(largest));
}
