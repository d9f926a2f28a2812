//! The few lines of HTTP it takes to scrape metrics.

use crate::patience::PATIENCE;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

/// The body of `GET path`, or why there is none.
///
/// # Errors
/// Connection errors, and any status but 200.
pub fn get(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    if !head.starts_with("HTTP/1.1 200") {
        return Err(std::io::Error::other(format!("{path}: {}", head.lines().next().unwrap_or(""))));
    }
    Ok(body.to_owned())
}

/// The sum of all samples of `name` whose labels contain every one of `labels` (as `key="value"`).
pub fn sample(metrics: &str, name: &str, labels: &[&str]) -> Option<f64> {
    let values: Vec<f64> = metrics
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.rsplit_once(' '))
        .filter(|(series, _)| {
            let (metric, rest) = series.split_once('{').unwrap_or((series, ""));
            metric == name && labels.iter().all(|label| rest.contains(label))
        })
        .filter_map(|(_, value)| value.parse().ok())
        .collect();
    (!values.is_empty()).then(|| values.iter().sum())
}

/// A loopback address that was free a moment ago.
///
/// # Panics
/// When the machine has no free port.
pub fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .unwrap_or_else(|error| panic!("finding a free port: {error}"))
}
