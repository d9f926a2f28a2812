//! Any bytes are an attach payload or refused; there is one way to write each payload.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluice_comm::attach::{AttachPayload, MAX_LEN};

fuzz_target!(|bytes: &[u8]| {
    match AttachPayload::decode(bytes) {
        Ok(payload) => {
            assert!(bytes.len() <= MAX_LEN);
            assert_eq!(payload.encode(), bytes);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
