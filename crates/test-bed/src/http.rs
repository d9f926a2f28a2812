//! One plain HTTP request, as a probe or a scrape makes it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context, bail};

/// Longest time for connecting, and for each read and write.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The body of `http://address/path`, where `path` begins with a slash. Fails if no status 200 comes within two seconds.
pub fn get(address: &str, path: &str) -> anyhow::Result<String> {
    get_within(TIMEOUT, address, path)
}

/// The same as [`get`] with another `timeout`.
pub fn get_within(timeout: Duration, address: &str, path: &str) -> anyhow::Result<String> {
    let (host, port) = address.rsplit_once(':').with_context(|| format!("{address} has no port"))?;
    let port: u16 = port.parse().with_context(|| format!("{address} has no port"))?;
    // An IPv6 address has brackets in a URL, and none where Kubernetes gives a service's address in a variable.
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let resolved = (host, port).to_socket_addrs().ok().and_then(|mut found| found.next());
    let resolved = resolved.with_context(|| format!("the host {host} has no address"))?;
    let mut stream = TcpStream::connect_timeout(&resolved, timeout)
        .with_context(|| format!("cannot connect to {address} for {path}"))?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).with_context(|| format!("cannot ask for {path}"))?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).with_context(|| format!("cannot read {path}"))?;
    let Some((head, body)) = answer.split_once("\r\n\r\n") else { bail!("{path} answered without a body") };
    if !head.starts_with("HTTP/1.1 200") {
        bail!("{path} answered {}", head.lines().next().unwrap_or_default());
    }
    Ok(body.to_owned())
}

/// A loopback address that no process uses at this moment. Another process may take it before its use.
pub fn free_address() -> std::io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0")?.local_addr()
}
