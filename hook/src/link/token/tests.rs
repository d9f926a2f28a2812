use sluice_comm::Name;

use super::*;

fn page() -> &'static Words {
    keep_mapped(SharedPage::anonymous().expect("a page"))
}

fn connection_with(page: &'static Words) -> TokenConnection {
    let identity = ClientIdentity { name: Name::new("a").expect("a name"), ordinal: 0, uuid: [0; 16] };
    let connection = TokenConnection::new(Address::Unix("unused".into()), identity);
    connection.grant.store(std::ptr::from_ref(page).cast_mut(), SeqCst);
    connection.attached.store(true, SeqCst);
    connection
}

#[test]
fn wait_for_a_gate_word_ends_when_its_page_is_replaced() {
    let (old, new) = (page(), page());
    let connection = connection_with(old);
    std::thread::scope(|scope| {
        let wait = || connection.wait_for_gate_change(&old[GATE], 0, Duration::from_secs(60));
        let waiting = scope.spawn(wait);
        while connection.awaited_gate.load(SeqCst).is_null() {
            std::thread::yield_now();
        }
        connection.grant.store(std::ptr::from_ref(new).cast_mut(), SeqCst);
        connection.end_wait_for(&old[GATE]);
        let ended = waiting.join().expect("the wait");
        assert!(matches!(ended, futex::Wake::Woken | futex::Wake::Changed), "{ended:?}");
    });
}

#[test]
fn gate_word_of_a_replaced_page_is_not_waited_for() {
    let (old, new) = (page(), page());
    let connection = connection_with(new);
    let ended = connection.wait_for_gate_change(&old[GATE], 0, Duration::from_secs(60));
    assert_eq!(ended, futex::Wake::Changed);
}
