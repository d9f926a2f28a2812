//! Reads `/metrics` of pod-managers or node agents by address, without Kubernetes.

use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use futures::future::join_all;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::{Body, Bytes};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::time::timeout;

use crate::top::{Origin, Top};

/// Longest time for one page.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The largest page that is read. A page of a hundred pods has 300 KiB.
const LARGEST_PAGE: usize = 16 << 20;

/// Addresses whose pages are shown together.
pub(crate) struct MetricsPages(Vec<String>);

impl MetricsPages {
    pub(crate) fn new(addresses: Vec<String>) -> Self {
        Self(addresses)
    }

    /// The GPUs of all pages. Fails if no page can be read; otherwise a note names each page that cannot.
    pub(crate) async fn top(&self) -> anyhow::Result<Top> {
        let mut top = Top::default();
        let pages = join_all(self.0.iter().map(|address| page(address))).await;
        let mut errors = Vec::new();
        for (address, page) in self.0.iter().zip(pages) {
            let origin = Origin::Address(address);
            let added = page.and_then(|page| top.add_page(origin, &page).map_err(|why| anyhow!(why)));
            errors.extend(added.err());
        }
        top.finish();
        if errors.len() == self.0.len()
            && let Some(first) = errors.pop()
        {
            return Err(first);
        }
        top.notes = errors.iter().map(|error| format!("{error:#}")).collect();
        Ok(top)
    }
}

async fn page(address: &str) -> anyhow::Result<String> {
    let url = format!("http://{address}/metrics");
    let uri = url.parse().with_context(|| format!("{address} is not an address such as 127.0.0.1:9400"))?;
    let client: Client<_, Empty<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let read = async {
        let answer = client.get(uri).await?;
        let status = answer.status();
        ensure!(status.is_success(), "status {status}");
        text(answer.into_body()).await
    };
    let page = timeout(TIMEOUT, read).await;
    let page = page.unwrap_or_else(|_| Err(anyhow!("no answer within {} s", TIMEOUT.as_secs())));
    page.with_context(|| format!("cannot read {url}"))
}

/// The text of an answer of at most [`LARGEST_PAGE`] bytes.
pub(crate) async fn text<B>(body: B) -> anyhow::Result<String>
where
    B: Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let body = Limited::new(body, LARGEST_PAGE).collect().await.map_err(|why| anyhow!(why))?;
    String::from_utf8(body.to_bytes().into()).context("the page is not UTF-8")
}
