//! Any bytes are an escrow message or refused, and each message has exactly one encoding.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluice_comm::escrow::{EscrowMessage, MAX_LEN};

fuzz_target!(|bytes: &[u8]| {
    match EscrowMessage::decode(bytes) {
        Ok(message) => {
            assert!(bytes.len() <= MAX_LEN);
            assert_eq!(message.encode(), bytes);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
