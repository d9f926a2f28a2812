//! Any 80 bytes are a request or refused, and a request that was accepted is sent in the same words.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluice_comm::{REQUEST_LEN, Request};

fuzz_target!(|frame: [u8; REQUEST_LEN]| {
    match Request::decode(&frame) {
        Ok(request) => {
            let sent = request.encode().expect("what was accepted can be sent");
            assert_eq!(Request::decode(&sent), Ok(request));
            // Behind the payload there is padding, which is not looked at; all before it is the same.
            let used = sent.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            assert_eq!(sent[..used], frame[..used]);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
