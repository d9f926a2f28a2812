//! Any bytes are a deposit with a supervisor or refused, and there is one way to write each deposit.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluice_comm::custody::{Deposit, MAX_LEN};

fuzz_target!(|bytes: &[u8]| {
    match Deposit::decode(bytes) {
        Ok(deposit) => {
            assert!(bytes.len() <= MAX_LEN);
            assert_eq!(deposit.encode(), bytes);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
