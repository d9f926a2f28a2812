//! An API server with one node and its pods, as far as a node agent uses one: lists, watches without changes, merge patches of the
//! node, and events, which it accepts.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::Context;
use serde_json::{Value, json};

/// Name of the node.
pub(super) const NODE: &str = "soak";

/// The server. Its threads end with this process.
#[derive(Debug)]
pub(super) struct ApiServer {
    address: SocketAddr,
}

#[derive(Debug)]
struct Objects {
    node: Mutex<Value>,
    pods: Vec<Value>,
}

struct Request {
    method: String,
    target: String,
    body: Vec<u8>,
}

impl ApiServer {
    /// Serves a node with these pods on a free port of this machine.
    pub(super) fn start(pods: Vec<Value>) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").context("the API server cannot listen")?;
        let address = listener.local_addr()?;
        let metadata = json!({"name": NODE, "uid": "n", "resourceVersion": "1"});
        let node = Mutex::new(json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata}));
        let objects = Arc::new(Objects { node, pods });
        thread::Builder::new().name("api-server".to_owned()).spawn(move || {
            for stream in listener.incoming().flatten() {
                let objects = Arc::clone(&objects);
                // A client that has ended is no error.
                thread::spawn(move || drop(serve(&stream, &objects)));
            }
        })?;
        Ok(Self { address })
    }

    /// A client configuration that leads to this server.
    pub(super) fn kubeconfig(&self) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "soak",
            "clusters": [{"name": "soak", "cluster": {"server": format!("http://{}", self.address)}}],
            "contexts": [{"name": "soak", "context": {"cluster": "soak", "user": "soak"}}],
            "users": [{"name": "soak", "user": {}}],
        })
    }
}

/// Answers the requests of one connection.
fn serve(stream: &TcpStream, objects: &Objects) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    while let Some(request) = read(&mut reader)? {
        let is_watch = request.method == "GET" && request.target.contains("watch=");
        if is_watch {
            // Nothing ever changes: the watch lasts until the client closes it.
            (&*stream).write_all(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
            )?;
            while reader.read(&mut [0; 64])? > 0 {}
            return Ok(());
        }
        let (status, body) = objects.answer(&request);
        let body = body.to_string();
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        (&*stream).write_all((head + &body).as_bytes())?;
    }
    Ok(())
}

/// The next request; `None` if the client has closed the connection.
fn read(reader: &mut BufReader<&TcpStream>) -> io::Result<Option<Request>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace().map(str::to_owned);
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut length = 0;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header)?;
        let Some((name, value)) = header.trim_end().split_once(':') else { break };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(Some(Request { method, target, body }))
}

impl Objects {
    fn answer(&self, Request { method, target, body }: &Request) -> (&'static str, Value) {
        let path = target.split('?').next().unwrap_or_default();
        let mut node = self.node.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = || serde_json::from_slice::<Value>(body).unwrap_or_default();
        let list = |items: &[Value]| json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "1"}, "items": items});
        match (method.as_str(), path) {
            ("GET", "/api/v1/pods") => ("200 OK", list(&self.pods)),
            ("GET", "/api/v1/nodes") => ("200 OK", list(std::slice::from_ref(&node))),
            ("PATCH", path) if path.starts_with("/api/v1/nodes/") => {
                merge(&mut node, &sent());
                ("200 OK", node.clone())
            }
            ("POST" | "PATCH", path) if path.contains("/events") => ("201 Created", sent()),
            _ => ("404 Not Found", json!({"kind": "Status", "status": "Failure", "code": 404})),
        }
    }
}

/// JSON merge patch (RFC 7386).
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        target.clone_from(patch);
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in patch {
        match target.as_object_mut() {
            Some(fields) if value.is_null() => drop(fields.remove(key)),
            _ => merge(&mut target[key], value),
        }
    }
}

#[cfg(test)]
mod tests;
