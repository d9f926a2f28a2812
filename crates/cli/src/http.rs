//! One plain HTTP request, as a probe or a scrape makes it.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context, bail};

const PATIENCE: Duration = Duration::from_secs(2);

/// The body of `http://address/path`, where `path` begins with a slash.
///
/// # Errors
/// If nothing answers there within two seconds, or with something else than status 200.
pub(crate) fn get(address: &str, path: &str) -> anyhow::Result<String> {
    let (host, port) = address.rsplit_once(':').with_context(|| format!("{address} has no port"))?;
    let port: u16 = port.parse().with_context(|| format!("{address} has no port"))?;
    // As in a URL, or bare, as Kubernetes gives a service's address in a variable.
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let place = (host, port).to_socket_addrs().ok().and_then(|mut found| found.next());
    let place = place.with_context(|| format!("there is no {host}"))?;
    let mut stream =
        TcpStream::connect_timeout(&place, PATIENCE).with_context(|| format!("cannot connect to {path}"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
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
