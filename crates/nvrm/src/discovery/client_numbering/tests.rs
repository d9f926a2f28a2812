use super::*;

#[test]
fn position_increases_when_the_numbering_begins_again() {
    let mut numbering = ClientNumbering::default();
    let mut positions = Vec::new();
    for number in [0xf_fff0, 0xf_fffe, 0x10, 0x8_0000, 0x10] {
        numbering.observe(FIRST_CLIENT + number);
        positions.push(numbering.newest());
    }
    let steps: Vec<u64> = positions.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
    assert_eq!(steps, [0xe, 0x12, 0x7_fff0, 0x8_0010]);
    let handles: Vec<u32> = positions.iter().map(|position| position.handle() - FIRST_CLIENT).collect();
    assert_eq!(handles, [0xf_fff0, 0xf_fffe, 0x10, 0x8_0000, 0x10]);
}

#[test]
fn number_behind_a_stepped_over_one_begins_no_new_round() {
    let mut numbering = ClientNumbering::from_newest(Some(FIRST_CLIENT + 0x1000 + 0x400));
    let before = numbering.newest();
    numbering.observe(FIRST_CLIENT + 0x1001);
    assert_eq!(numbering.newest(), before);
    numbering.observe(FIRST_CLIENT + 0x1500);
    assert_eq!(numbering.newest().0, before.0 + 0x100);
}

#[test]
fn handles_outside_the_numbering_are_ignored() {
    let mut numbering = ClientNumbering::from_newest(Some(FIRST_CLIENT + 7));
    numbering.observe(0xc1e0_0001);
    numbering.observe(3);
    assert_eq!(numbering, ClientNumbering::from_newest(Some(FIRST_CLIENT + 7)));
    assert_eq!(ClientNumbering::from_newest(Some(0)), ClientNumbering::default());
}
