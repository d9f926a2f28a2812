use super::*;
use std::os::unix::net::UnixDatagram;

#[test]
fn requests_fail_at_once_after_one_without_an_answer_and_are_sent_again_after_a_pause() {
    let (ours, daemon) = UnixDatagram::pair().unwrap();
    daemon.set_nonblocking(true).unwrap();
    let socket = Socket::new(ours.into());
    let requests = || std::iter::repeat(()).take_while(|()| daemon.recv(&mut [0; 4096]).is_ok()).count();
    let ask = || {
        let begun = Instant::now();
        assert!(socket.escape(0x2a, &mut [0; 32], &mut []).is_err());
        begun.elapsed()
    };
    assert!(ask() >= ANSWER_TIMEOUT);
    assert_eq!(requests(), 1);
    assert!(ask() < ANSWER_TIMEOUT);
    assert_eq!(requests(), 0);
    std::thread::sleep(PAUSE);
    assert!(ask() >= ANSWER_TIMEOUT);
    assert_eq!(requests(), 1);
}
