//! However a stream is cut into reads, the same frames come out. The input is the lengths of the reads and the stream.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluice_comm::{FrameReader, REQUEST_LEN};

fuzz_target!(|input: (Vec<u8>, Vec<u8>)| {
    let (cuts, stream) = input;
    let mut frames = FrameReader::<REQUEST_LEN>::new();
    let mut received = Vec::new();
    let mut unread = stream.as_slice();
    let mut cuts = cuts.iter().cycle();
    while !unread.is_empty() {
        let spare = frames.spare();
        assert!(!spare.is_empty(), "an empty buffer would read as the end of the stream");
        let cut = usize::from(*cuts.next().unwrap_or(&u8::MAX)).max(1);
        let read = cut.min(spare.len()).min(unread.len());
        let (piece, rest) = unread.split_at(read);
        spare[..read].copy_from_slice(piece);
        unread = rest;
        frames.filled(read);
        received.extend(frames.next());
    }
    let (whole, rest) = stream.as_chunks::<REQUEST_LEN>();
    assert_eq!(received, whole);
    assert_eq!(frames.is_mid_frame(), !rest.is_empty());
});
