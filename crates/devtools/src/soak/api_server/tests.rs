use super::{ApiServer, merge};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;

#[test]
fn patch_replaces_adds_and_removes() {
    let mut node = json!({"metadata": {"labels": {"a": "1", "b": "2"}}});
    merge(&mut node, &json!({"metadata": {"labels": {"a": null, "b": "3"}, "annotations": {"c": "4"}}}));
    assert_eq!(node, json!({"metadata": {"labels": {"b": "3"}, "annotations": {"c": "4"}}}));
}

#[test]
fn patched_node_is_listed_over_one_connection() {
    let server = ApiServer::start(vec![json!({"metadata": {"name": "pod"}})]).unwrap();
    let mut stream = TcpStream::connect(server.address).unwrap();
    let patch = r#"{"metadata":{"labels":{"x":"y"}}}"#;
    let length = patch.len();
    write!(stream, "PATCH /api/v1/nodes/soak HTTP/1.1\r\ncontent-length: {length}\r\n\r\n{patch}").unwrap();
    write!(stream, "GET /api/v1/nodes?limit=500 HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answers = String::new();
    stream.read_to_string(&mut answers).unwrap();
    let listed: Value = serde_json::from_str(answers.rsplit("\r\n\r\n").next().unwrap()).unwrap();
    assert_eq!(listed["items"][0]["metadata"]["labels"]["x"], "y");
}
