//! Tests of `leadership.rs`.

use super::*;

#[test]
fn leader_is_active_only_after_both_lists_of_its_term() {
    let leadership = Leadership::default();
    leadership.record_list(WatchedKind::Nodes, leadership.term());
    leadership.record_list(WatchedKind::Pods, leadership.term());
    assert_eq!((leadership.state(), leadership.has_listed_once()), (LeadershipState::Standby, true));
    leadership.set_leading(true);
    assert_eq!(leadership.state(), LeadershipState::Syncing);
    leadership.record_list(WatchedKind::Pods, 0);
    leadership.record_list(WatchedKind::Nodes, 1);
    assert_eq!(leadership.state(), LeadershipState::Syncing);
    leadership.record_list(WatchedKind::Pods, 1);
    assert_eq!(leadership.state(), LeadershipState::Active);
    leadership.set_leading(true);
    assert_eq!(leadership.state(), LeadershipState::Active);
    leadership.set_leading(false);
    assert_eq!(leadership.state(), LeadershipState::Standby);
    leadership.set_leading(true);
    assert_eq!(leadership.state(), LeadershipState::Syncing);
}

#[tokio::test(start_paused = true)]
async fn expired_lease_ends_leadership_and_a_new_term_needs_new_lists() {
    let leadership = Leadership::default();
    let lease = Some(Duration::from_secs(15));
    leadership.set_leader(true, "me", lease);
    leadership.record_list(WatchedKind::Nodes, 1);
    leadership.record_list(WatchedKind::Pods, 1);
    tokio::time::advance(Duration::from_secs(14)).await;
    leadership.set_leader(true, "me", lease);
    tokio::time::advance(Duration::from_secs(14)).await;
    assert_eq!((leadership.state(), leadership.term()), (LeadershipState::Active, 1));
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(leadership.state(), LeadershipState::Standby);
    leadership.set_leader(true, "me", lease);
    assert_eq!((leadership.state(), leadership.term()), (LeadershipState::Syncing, 2));
}

#[tokio::test(start_paused = true)]
async fn wait_until_active_ends_with_the_lists_or_the_timeout() {
    let leadership = std::sync::Arc::new(Leadership::default());
    leadership.set_leading(true);
    assert_eq!(leadership.wait_until_active(Duration::from_secs(2)).await, LeadershipState::Syncing);
    let waiting = tokio::spawn({
        let leadership = leadership.clone();
        async move { leadership.wait_until_active(Duration::from_secs(2)).await }
    });
    tokio::task::yield_now().await;
    leadership.record_list(WatchedKind::Nodes, 1);
    leadership.record_list(WatchedKind::Pods, 1);
    assert_eq!(waiting.await.unwrap(), LeadershipState::Active);
}

/// How long the lists of the current term wait.
async fn wait(leadership: &Leadership) -> Duration {
    let began = Instant::now();
    leadership
        .settled(SettleTimes { own: Duration::from_millis(500), takeover: Duration::from_secs(10) })
        .await;
    began.elapsed()
}

#[tokio::test(start_paused = true)]
async fn lists_wait_until_binds_of_another_leader_have_arrived() {
    let leadership = Leadership::default();
    let lease = Some(Duration::from_secs(15));
    assert_eq!(wait(&leadership).await, Duration::ZERO, "a standby lists at once");
    leadership.set_leader(false, "other", lease);
    leadership.set_leader(true, "me", lease);
    tokio::time::advance(Duration::from_secs(3)).await;
    assert_eq!(wait(&leadership).await, Duration::from_secs(7));
    assert_eq!(wait(&leadership).await, Duration::ZERO, "a watch that is opened again");
    // The kube-scheduler beside this process restarts: the process knows the binds itself.
    leadership.set_leader(true, "me again", lease);
    assert_eq!(wait(&leadership).await, Duration::from_millis(500));
}

#[tokio::test(start_paused = true)]
async fn lists_wait_for_unknown_binds_after_a_start_and_an_expired_lease() {
    let leadership = Leadership::default();
    let lease = Some(Duration::from_secs(15));
    leadership.set_leader(true, "me", lease);
    assert_eq!(wait(&leadership).await, Duration::from_secs(10));
    tokio::time::advance(Duration::from_secs(20)).await;
    leadership.set_leader(true, "me", lease);
    assert_eq!(wait(&leadership).await, Duration::from_secs(10));
}
