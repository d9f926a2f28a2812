use super::*;

fn wait(called: u64, returned: u64) -> Wait {
    Wait { called, returned }
}

#[test]
fn hand_off_lasts_from_the_refused_launch_to_the_return_of_the_launch_that_waited() {
    let first = [wait(100, 220), wait(300, 420)];
    let second = [wait(20, 107), wait(205, 350)];
    assert_eq!(hand_offs(&first, &second).collect::<Vec<_>>(), [(100, 107), (300, 350)]);
    assert_eq!(hand_offs(&second, &first).collect::<Vec<_>>(), [(205, 220)]);
}

#[test]
fn grant_to_the_same_process_again_is_no_hand_off() {
    // The first process returns its grant and receives the next one, while the second waits on.
    let first = [wait(100, 110)];
    let second = [wait(20, 300)];
    assert_eq!(hand_offs(&first, &second).count(), 0);
}
