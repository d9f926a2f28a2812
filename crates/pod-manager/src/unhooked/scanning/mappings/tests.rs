use super::*;

#[test]
fn grant_page_is_recognised_by_address_and_inode() {
    let maps = "7f01a000-7f01b000 r--s 00000000 00:01 4711 /memfd:sluice-grant (deleted)\n\
                7f01b000-7f01d000 rw-p 00000000 00:00 0 \n";
    let page = |address, inode| super::maps_page(maps, &GrantPageMapping { address, inode });
    assert!(page(0x7f01_a000, 4711));
    assert!(!page(0x7f01_a000, 4712), "another page of the same name");
    assert!(!page(0x7f01_b000, 4711), "a private page");
    assert!(!page(0x7f01_c000, 4711), "no page begins there");
}
