use super::*;

#[test]
fn structs_have_the_c_compilers_size_and_alignment() {
    let mut ours = STRUCTS.to_vec();
    ours.sort_unstable();
    assert_eq!(ours, LAYOUTS);
}
