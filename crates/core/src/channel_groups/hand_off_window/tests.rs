use super::*;

const US: u64 = 1000;
const MS: u64 = 1_000_000;

fn open(window: &mut HandOffWindow, now: u64, critical: &[Activity]) -> bool {
    window.is_open(&ChannelGroupPolicy::default(), now, critical.iter().copied())
}

const BUSY: Activity = Activity { busy: true, since_ns: 0 };

fn idle_since(since_ns: u64) -> Activity {
    Activity { busy: false, since_ns }
}

#[test]
fn window_opens_after_a_finished_request_and_stays_open_for_the_hand_off() {
    let mut window = HandOffWindow::default();
    let at = 1000 * MS;
    assert!(!open(&mut window, at, &[BUSY]));
    assert!(!open(&mut window, at + MS, &[idle_since(at), BUSY]), "another process is busy");
    assert!(open(&mut window, at + 2 * MS, &[idle_since(at + 2 * MS - 200 * US)]));
    assert!(open(&mut window, at + 3 * MS, &[BUSY]));
    assert!(!open(&mut window, at + 6 * MS, &[BUSY]));
    assert_eq!(window.forced, 0);
}

#[test]
fn window_stays_closed_in_the_middle_of_a_pause() {
    let mut window = HandOffWindow::default();
    let at = 1000 * MS;
    assert!(!open(&mut window, at, &[idle_since(at - 5 * MS)]));
    assert!(open(&mut window, at + MS, &[idle_since(at + MS - 100 * MS)]), "no request for long");
}

#[test]
fn window_is_forced_open_after_the_longest_wait() {
    let mut window = HandOffWindow::default();
    let at = 1000 * MS;
    assert!(!open(&mut window, at, &[BUSY]));
    let policy = ChannelGroupPolicy::default();
    assert_eq!(window.wake_at(&policy, at), Some(at + 250 * US));
    assert_eq!(window.wake_at(&policy, at + 20 * MS - 1), Some(at + 20 * MS));
    assert!(!open(&mut window, at + 20 * MS - 1, &[BUSY]));
    assert!(open(&mut window, at + 20 * MS, &[BUSY]));
    assert_eq!((window.forced, window.wake_at(&policy, at + 20 * MS)), (1, None));
}
