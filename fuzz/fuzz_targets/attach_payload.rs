//! Any bytes are an attach payload or refused; there is one way to write each payload of the version that we write.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluice_comm::attach::{AttachPayload, MAX_DESCRIPTORS, MAX_LEN};

fuzz_target!(|bytes: &[u8]| {
    match AttachPayload::decode(bytes) {
        Ok(payload) => {
            assert!(bytes.len() <= MAX_LEN);
            assert!(payload.descriptors() <= MAX_DESCRIPTORS);
            let written = payload.encode();
            assert_eq!(AttachPayload::decode(&written).as_ref(), Ok(&payload));
            match bytes[4] {
                1 => assert!(payload.contexts.is_empty(), "nothing of the first version can be controlled"),
                2 => assert_eq!(payload.encode_second(), bytes),
                _ => assert_eq!(written, bytes),
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
