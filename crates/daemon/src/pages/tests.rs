use super::*;
use axum::routing::get;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

async fn start() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, Router::new().route("/", get(async || "ok\n")), std::future::pending()));
    address
}

#[tokio::test]
async fn oldest_silent_connection_is_closed_for_a_request() {
    let address = start().await;
    let mut silent = Vec::new();
    for _ in 0..MAX_OF_ADDRESS {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    let mut asking = TcpStream::connect(address).await.unwrap();
    asking.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    asking.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(silent[0].read(&mut [0]).await.unwrap_or(0), 0, "the oldest is closed");
}

#[tokio::test(start_paused = true)]
async fn half_of_a_request_is_closed_after_the_header_timeout() {
    let mut half = TcpStream::connect(start().await).await.unwrap();
    half.write_all(b"GET / HTTP/1.1\r\nHost:").await.unwrap();
    let begun = tokio::time::Instant::now();
    let mut answer = Vec::new();
    let _ = half.read_to_end(&mut answer).await;
    assert_eq!(begun.elapsed().as_secs(), HEADER_TIMEOUT.as_secs(), "{answer:?}");
}

#[tokio::test]
async fn stop_ends_the_server_although_a_connection_is_open() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let _idle = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let server = tokio::spawn(serve(listener, Router::new(), async { drop(stopped.await) }));
    stop.send(()).unwrap();
    timeout(Duration::from_secs(20), server).await.unwrap().unwrap();
}
