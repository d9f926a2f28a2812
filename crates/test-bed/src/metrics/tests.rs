use super::*;
use std::io::{Read, Write};
use std::net::TcpListener;

const TEXT: &str = "# HELP sluice_share Share.\n# TYPE sluice_share gauge\nsluice_share{client=\"be-30\"} 0.298\n\
    sluice_refused_connections_total{reason=\"unknown\"} 3\nnonsense\nsluice_grants_total{gpu=\"0\",client=\"lc\"} 1e3\n\
    sluice_level{level=\"turn\"} 2\nsluice_level{level=\"token\"} 0\nsluice_levels 7\n";

#[test]
fn a_sample_is_found_by_metric_and_client() {
    let metrics = Metrics::parse(TEXT);
    assert_eq!(metrics.of_client("sluice_share", "be-30"), Some(0.298));
    assert_eq!(metrics.of_client("sluice_grants_total", "lc"), Some(1000.0));
    assert_eq!(metrics.of_client("sluice_share", "lc"), None);
}

#[test]
fn samples_of_a_metric_are_summed_and_told_apart_by_a_label() {
    let metrics = Metrics::parse(TEXT);
    assert_eq!(metrics.sum("sluice_level", &[]), Some(2.0));
    let levels = BTreeMap::from([("turn".to_owned(), 2.0), ("token".to_owned(), 0.0)]);
    assert_eq!(metrics.by_label("sluice_level", "level"), levels);
}

#[test]
fn an_answer_with_another_status_than_200_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            request.extend(byte);
        }
        stream.write_all(b"HTTP/1.1 404 Not Found\r\n\r\nsluice_share 1\n").unwrap();
    });
    assert!(Metrics::scrape(address).unwrap_err().to_string().contains("404"));
    server.join().unwrap();
}
