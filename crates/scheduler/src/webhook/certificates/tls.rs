//! TLS server configurations from PEM, and the end of a certificate.

use std::sync::Arc;

use anyhow::Context;
use jiff::civil::DateTime;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

// Tags of DER, as far as they lead to `notAfter`.
const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;

/// A configuration with this certificate chain and key.
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
pub(in crate::webhook) fn without_certificate() -> anyhow::Result<Arc<ServerConfig>> {
    let nothing = Arc::new(rustls::server::ResolvesServerCertUsingSni::new());
    Ok(Arc::new(builder()?.with_no_client_auth().with_cert_resolver(nothing)))
}

fn builder() -> anyhow::Result<rustls::ConfigBuilder<ServerConfig, rustls::WantsVerifier>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .context("no TLS version")
}

/// When the first certificate of a chain ends, in seconds since 1970.
pub(in crate::webhook) fn end_of(certificate: &[u8]) -> anyhow::Result<i64> {
    let first = CertificateDer::from_pem_slice(certificate).context("the certificate is no PEM")?;
    not_after(&first).context("the certificate has no end")
}

/// A time as text.
pub(in crate::webhook) fn format_time(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).map_or_else(|_| seconds.to_string(), |time| time.to_string())
}

/// Seconds since 1970 at which the certificate (DER) ends; `None` if it is none.
pub(super) fn not_after(certificate: &[u8]) -> Option<i64> {
    let (tag, certificate, _) = element(certificate)?;
    let (inner, body, _) = element(certificate)?;
    if (tag, inner) != (SEQUENCE, SEQUENCE) {
        return None;
    }
    let rest = match element(body)? {
        (VERSION, _, rest) => rest,
        _ => body,
    };
    let rest = skip(rest, INTEGER)?;
    let algorithm_then = skip(rest, SEQUENCE)?;
    let issuer_then = skip(algorithm_then, SEQUENCE)?;
    let (tag, validity, _) = element(issuer_then)?;
    if tag != SEQUENCE {
        return None;
    }
    let (_, _, after) = element(validity)?;
    let (tag, time, _) = element(after)?;
    seconds(tag, std::str::from_utf8(time).ok()?)
}

/// One element: its tag, its content, and the rest.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = bytes.split_first()?;
    let (first, mut rest) = rest.split_first()?;
    let mut length = usize::from(*first);
    if length >= 0x80 {
        let (digits, after) = rest.split_at_checked(length & 0x7f).filter(|(digits, _)| digits.len() <= 4)?;
        length = digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit));
        rest = after;
    }
    let (content, rest) = rest.split_at_checked(length)?;
    Some((*tag, content, rest))
}

/// The rest after an element of this tag.
fn skip(bytes: &[u8], tag: u8) -> Option<&[u8]> {
    element(bytes).filter(|(found, _, _)| *found == tag).map(|(_, _, rest)| rest)
}

/// `YYMMDDHHMMSSZ` (two digits of the year, 1950 to 2049) or `YYYYMMDDHHMMSSZ`.
fn seconds(tag: u8, text: &str) -> Option<i64> {
    let full = match tag {
        UTC_TIME => format!("{}{text}", if text.get(..2)? < "50" { "20" } else { "19" }),
        GENERALIZED_TIME => text.to_owned(),
        _ => return None,
    };
    let digits = full.strip_suffix('Z').filter(|digits| digits.len() == 14)?;
    let time = DateTime::strptime("%Y%m%d%H%M%S", digits).ok()?;
    Some(time.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp().as_second())
}
