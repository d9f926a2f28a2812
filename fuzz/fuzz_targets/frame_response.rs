//! Any 40 bytes are an answer to each type of request, or refused.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluice_comm::{RESPONSE_LEN, RequestKind, Response};

fuzz_target!(|frame: [u8; RESPONSE_LEN]| {
    for kind in RequestKind::ALL {
        match Response::decode(&frame, kind) {
            Ok(response) => assert_eq!(Response::decode(&response.encode(), kind), Ok(response)),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
});
