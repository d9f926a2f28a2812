use super::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::test]
async fn one_connection_above_the_limit_waits_until_another_one_closes() {
    let mut limit = ConnectionLimit::new(TcpListener::bind("127.0.0.1:0").await.unwrap());
    let address = limit.local_addr().unwrap();
    let mut peers = Vec::new();
    for _ in 0..=MAX_CONNECTIONS {
        peers.push(TcpStream::connect(address).await.unwrap());
    }
    let mut accepted = Vec::new();
    for _ in 0..MAX_CONNECTIONS {
        accepted.push(limit.accept().await.0);
    }
    assert!(futures::poll!(std::pin::pin!(limit.accept())).is_pending());
    accepted.pop();
    let (mut last, _) = limit.accept().await;
    peers.pop().unwrap().write_all(b"x").await.unwrap();
    assert_eq!(last.read_u8().await.unwrap(), b'x');
}

#[tokio::test]
async fn a_connection_fails_after_its_deadline() {
    let mut limit = ConnectionLimit::new(TcpListener::bind("127.0.0.1:0").await.unwrap());
    let _peer = TcpStream::connect(limit.local_addr().unwrap()).await.unwrap();
    let (mut connection, _) = limit.accept().await;
    connection.deadline = Box::pin(sleep(Duration::ZERO));
    let why = connection.read_u8().await.unwrap_err();
    assert_eq!(why.kind(), io::ErrorKind::TimedOut);
}
