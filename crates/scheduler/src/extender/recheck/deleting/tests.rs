use super::*;

#[tokio::test(start_paused = true)]
async fn pod_requests_are_rate_limited() {
    let mut limiter = RequestLimiter::full(Instant::now());
    assert_eq!((limiter.take(16), limiter.take(16), limiter.take(16)), (16, 16, 0));
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!((limiter.take(16), limiter.take(16)), (16, 4));
    tokio::time::advance(Duration::from_secs(3600)).await;
    assert_eq!(limiter.take(1000), 32);
}

#[tokio::test(start_paused = true)]
async fn no_request_is_made_for_a_while_after_a_timeout() {
    let mut limiter = RequestLimiter::full(Instant::now());
    limiter.pause(Duration::from_millis(250));
    tokio::time::advance(Duration::from_millis(4_999)).await;
    assert_eq!(limiter.take(1), 0);
    tokio::time::advance(Duration::from_millis(1)).await;
    assert_eq!(limiter.take(1), 1);
}
