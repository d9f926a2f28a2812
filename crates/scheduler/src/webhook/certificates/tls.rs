//! Builds TLS server configurations from PEM.

use std::sync::Arc;

use anyhow::Context;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::expiry;

/// A configuration with this certificate chain and key.
///
/// # Errors
/// They are no PEM, or do not belong together.
pub(in crate::webhook) fn config(certificate: &[u8], key: &[u8]) -> anyhow::Result<Arc<ServerConfig>> {
    let chain = CertificateDer::pem_slice_iter(certificate)
        .collect::<Result<Vec<_>, _>>()
        .context("the certificate is no PEM")?;
    let key = PrivateKeyDer::from_pem_slice(key).context("the key is no PEM")?;
    let mut config = builder()?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .context("certificate and key do not match")?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// A configuration without a certificate, which refuses every connection. It lets the server listen before the first
/// certificate exists.
///
/// # Errors
/// Never with ring's defaults.
pub(in crate::webhook) fn without_certificate() -> anyhow::Result<Arc<ServerConfig>> {
    Ok(Arc::new(builder()?.with_no_client_auth().with_cert_resolver(Arc::new(Nothing))))
}

#[derive(Debug)]
struct Nothing;

impl rustls::server::ResolvesServerCert for Nothing {
    fn resolve(&self, _: rustls::server::ClientHello<'_>) -> Option<Arc<rustls::sign::CertifiedKey>> {
        None
    }
}

fn builder() -> anyhow::Result<rustls::ConfigBuilder<ServerConfig, rustls::WantsVerifier>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .context("no TLS version")
}

/// When the first certificate of a chain ends, in seconds since 1970.
///
/// # Errors
/// It is no certificate.
pub(in crate::webhook) fn end_of(certificate: &[u8]) -> anyhow::Result<i64> {
    let first = CertificateDer::from_pem_slice(certificate).context("the certificate is no PEM")?;
    expiry::not_after(&first).context("the certificate has no end")
}

/// A time as text.
pub(in crate::webhook) fn format_time(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).map_or_else(|_| seconds.to_string(), |time| time.to_string())
}
