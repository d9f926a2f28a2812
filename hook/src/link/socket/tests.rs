use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use super::*;

#[test]
fn wait_for_an_answer_of_which_only_a_part_comes_ends_after_the_limit() {
    let (ours, mut theirs) = UnixStream::pair().expect("a connection");
    let socket = Socket::closed(0);
    socket.fd.set(ours.into());
    theirs.write_all(&[0; RESPONSE_LEN - 1]).expect("the first part");
    std::thread::scope(|scope| {
        let waiting =
            scope.spawn(|| socket.answer(0, RequestKind::MemLimit, Some(Duration::from_millis(300))));
        let begun = Instant::now();
        while !waiting.is_finished() && begun.elapsed() < Duration::from_secs(3) {
            std::thread::yield_now();
        }
        let has_ended = waiting.is_finished();
        drop(theirs);
        assert!(has_ended, "it still waits for the rest");
        assert!(matches!(waiting.join(), Ok(Err(LinkError::Gone))));
    });
}
