//! A look at the manager's `/metrics`, as Prometheus would take it.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::http;

/// The samples of one scrape: (metric, client) to value. Samples without a `client` label have an empty one; of several with
/// the same client (buckets, say) the last counts.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Metrics(BTreeMap<(String, String), f64>);

impl Metrics {
    /// Fetches `http://address/metrics`.
    ///
    /// # Errors
    /// If nothing answers there within two seconds, or with something else than status 200.
    pub(crate) fn scrape(address: SocketAddr) -> anyhow::Result<Self> {
        Ok(Self::parse(&http::get(&address.to_string(), "/metrics")?))
    }

    /// Reads the text format; comments and what is no sample are skipped.
    fn parse(text: &str) -> Self {
        Self(text.lines().filter_map(sample).collect())
    }

    /// The value of a metric for a client, if it is exported.
    pub(crate) fn get(&self, metric: &str, client: &str) -> Option<f64> {
        self.0.get(&(metric.to_owned(), client.to_owned())).copied()
    }
}

fn sample(line: &str) -> Option<((String, String), f64)> {
    if line.starts_with('#') {
        return None;
    }
    let (series, value) = line.rsplit_once(' ')?;
    let (name, labels) = series.split_once('{').unwrap_or((series, ""));
    let client = labels
        .split_once("client=\"")
        .and_then(|(_, rest)| rest.split_once('"'))
        .map_or("", |(client, _)| client);
    Some(((name.to_owned(), client.to_owned()), value.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    const TEXT: &str = "# HELP sluice_share Share.\n# TYPE sluice_share gauge\nsluice_share{client=\"be-30\"} 0.298\n\
        sluice_refused_connections_total{reason=\"unknown\"} 3\nnonsense\nsluice_grants_total{gpu=\"0\",client=\"lc\"} 1e3\n";

    #[test]
    fn a_sample_is_found_by_metric_and_client() {
        let metrics = Metrics::parse(TEXT);
        assert_eq!(metrics.get("sluice_share", "be-30"), Some(0.298));
        assert_eq!(metrics.get("sluice_grants_total", "lc"), Some(1000.0));
        assert_eq!(metrics.get("sluice_share", "lc"), None);
    }

    #[test]
    fn an_answer_that_is_not_200_is_no_scrape() {
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
}
