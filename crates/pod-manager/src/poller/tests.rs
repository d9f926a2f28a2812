use super::*;

#[test]
fn every_source_is_recovered_from_its_registration() {
    let sources = [
        Source::UnixListener,
        Source::TcpListener,
        Source::Timer,
        Source::Messages,
        Source::Signal,
        Source::MemoryChannels,
        Source::HostMemory,
        Source::Connection(ConnectionId(0)),
        Source::Connection(ConnectionId(ID_MASK)),
        Source::Wakeup(ProcessId(7)),
        Source::ProcessEnd(ProcessId(7)),
    ];
    for source in sources {
        assert_eq!(Source::decode(source.encode()), source);
    }
}
