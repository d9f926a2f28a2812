//! Authorities and the serving certificates that they sign. Times are seconds since 1970.

use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use serde::{Deserialize, Serialize};

/// Certificates are valid from a little before now, because the clocks of a cluster's machines differ.
const SKEW: i64 = 300;

/// An authority whose certificate the API server trusts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::webhook) struct Authority {
    /// Its name, different for each.
    pub(super) name: String,
    /// PEM.
    pub(super) certificate: String,
    /// PEM; removed once a newer authority signs.
    pub(super) key: Option<String>,
    /// When it was made.
    pub(super) made: i64,
    /// When its certificate ends.
    pub(super) ends: i64,
}

/// A serving certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::webhook) struct Serving {
    /// PEM.
    pub(super) certificate: String,
    /// PEM.
    pub(super) key: String,
    /// Name of the authority that signed.
    pub(super) signed_by: String,
    /// Host names that it is valid for.
    pub(super) names: Vec<String>,
    /// When it ends.
    pub(super) ends: i64,
}

impl Authority {
    /// Creates an authority.
    pub(super) fn new(now: i64, life: i64) -> Result<Self, rcgen::Error> {
        let key = KeyPair::generate()?;
        // Two replicas may each create one in the same second. Only one is stored, and the key tells them apart.
        let name = format!("sluice-webhook-ca-{now}");
        let certificate = authority_params(&name, now, now + life)?.self_signed(&key)?;
        Ok(Self {
            name,
            certificate: certificate.pem(),
            key: Some(key.serialize_pem()),
            made: now,
            ends: now + life,
        })
    }

    /// Signs a serving certificate; `None` if the key is gone. It does not outlive the authority.
    pub(super) fn sign(
        &self,
        names: &[String],
        now: i64,
        life: i64,
    ) -> Result<Option<Serving>, rcgen::Error> {
        let Some(key) = &self.key else {
            return Ok(None);
        };
        let issuer =
            Issuer::new(authority_params(&self.name, self.made, self.ends)?, KeyPair::from_pem(key)?);
        let ends = (now + life).min(self.ends);
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name.push(DnType::CommonName, "sluice-webhook");
        params.not_before = date_time_ymd(1970, 1, 1) + since_1970(now - SKEW);
        params.not_after = date_time_ymd(1970, 1, 1) + since_1970(ends);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        Ok(Some(Serving {
            certificate: params.signed_by(&key, &issuer)?.pem(),
            key: key.serialize_pem(),
            signed_by: self.name.clone(),
            names: names.to_vec(),
            ends,
        }))
    }
}

fn authority_params(name: &str, made: i64, ends: i64) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.not_before = date_time_ymd(1970, 1, 1) + since_1970(made - SKEW);
    params.not_after = date_time_ymd(1970, 1, 1) + since_1970(ends);
    Ok(params)
}

/// A duration for rcgen, whose time type cannot be named here.
fn since_1970(seconds: i64) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}
