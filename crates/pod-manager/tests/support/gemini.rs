//! A peer that speaks only Gemini's protocol, over TCP.

use super::hook::PATIENCE;
use sluice_comm::{Name, RESPONSE_LEN, Request, RequestBody, RequestKind, Response, ResponseBody};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

pub struct Gemini {
    pub stream: TcpStream,
    name: Name,
    id: i32,
}

impl Gemini {
    pub fn connect(address: SocketAddr, client: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, name: Name::new(client).unwrap(), id: 0 }
    }

    pub fn send(&mut self, body: RequestBody) -> i32 {
        self.id += 1;
        let frame = Request { name: self.name, id: self.id, body }.encode().unwrap();
        self.stream.write_all(&frame).unwrap();
        self.id
    }

    pub fn receive(&mut self, kind: RequestKind) -> Response {
        let mut frame = [0; RESPONSE_LEN];
        self.stream.read_exact(&mut frame).unwrap();
        Response::decode(&frame, kind).unwrap()
    }

    pub fn ask(&mut self, body: RequestBody) -> ResponseBody {
        let id = self.send(body);
        let response = self.receive(body.kind());
        assert_eq!(response.id, id);
        response.body
    }

    pub fn want(&mut self, overuse_ms: f64, next_burst_ms: f64) {
        self.send(RequestBody::Quota { overuse_ms, next_burst_ms });
    }

    pub fn granted(&mut self) -> f64 {
        match self.receive(RequestKind::Quota).body {
            ResponseBody::Quota { quota_ms } => quota_ms,
            other => panic!("{other:?}"),
        }
    }

    /// The quota, if the answer has come already.
    pub fn granted_by_now(&mut self) -> Option<f64> {
        self.stream.set_nonblocking(true).unwrap();
        let mut frame = [0; RESPONSE_LEN];
        let read = self.stream.peek(&mut frame);
        self.stream.set_nonblocking(false).unwrap();
        match read {
            Ok(0) => panic!("closed"),
            Ok(_) => Some(self.granted()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            Err(error) => panic!("{error}"),
        }
    }
}

impl Gemini {
    /// A frame that is not sent.
    pub fn frame(&mut self, body: RequestBody) -> [u8; sluice_comm::REQUEST_LEN] {
        self.id += 1;
        Request { name: self.name, id: self.id, body }.encode().unwrap()
    }

    pub fn rename(&mut self, client: &str) {
        self.name = Name::new(client).unwrap();
    }

    /// Whether the manager has closed the connection; waits for it.
    pub fn is_closed(&mut self) -> bool {
        match self.stream.read(&mut [0]) {
            Ok(0) => true,
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => true,
            other => panic!("not closed: {other:?}"),
        }
    }
}
