use sluice_comm::{Name, SILENCE_NS};

use super::*;

#[test]
fn contenders_that_a_silent_manager_wrote_do_not_count() {
    let identity = ClientIdentity { name: Name::new("a").expect("a name"), ordinal: 0, uuid: [0; 16] };
    let connection = TokenConnection::new(Address::Unix("/nowhere".into()), identity);
    let words = keep_mapped(SharedPage::anonymous().expect("a page"));
    let page = GrantView::new(words);
    page.init();
    page.set_latency_critical(true);
    page.set_contenders(2);
    connection.grant.store(std::ptr::from_ref(words).cast_mut(), Release);
    connection.attached.store(true, Release);
    assert_eq!(connection.critical_contenders(), Some(2), "a manager without a heartbeat is never silent");
    let now = monotonic_ns();
    page.set_heartbeat(now);
    assert_eq!(connection.critical_contenders(), Some(2));
    page.set_heartbeat(now - SILENCE_NS);
    assert_eq!(connection.critical_contenders(), None);
    page.set_contenders(0);
    assert_eq!(connection.critical_contenders(), Some(0));
}
