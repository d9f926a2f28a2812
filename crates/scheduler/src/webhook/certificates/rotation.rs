//! Authorities, the serving certificates that they sign, and when both are renewed. Pure: the clock is an argument;
//! times are seconds since 1970. The entry point is [`Policy::advance`].
//!
//! A new authority is published first and signs later: after it has been in every webhook configuration for `overlap`.
//! So no API server meets a certificate that it does not trust yet. The old authority stays published until it ends,
//! for replicas that still serve what it signed.

use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use serde::{Deserialize, Serialize};

/// Certificates are valid from a little before now, because the clocks of a cluster's machines differ.
const SKEW: i64 = 300;

/// Host names of the certificate, and lifetimes in seconds.
#[derive(Clone, Debug)]
pub(in crate::webhook) struct Policy {
    pub(in crate::webhook) names: Vec<String>,
    pub(in crate::webhook) authority_life: i64,
    pub(in crate::webhook) serving_life: i64,
    /// How long a new authority is only published.
    pub(in crate::webhook) overlap: i64,
}

/// The material that the replicas share in one Secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::webhook) struct Material {
    /// Oldest first.
    pub(super) authorities: Vec<Authority>,
    pub(super) serving: Serving,
}

impl Policy {
    /// The material as it should be now; equal to `current` if nothing is due. `trusted` is the bundle of each webhook
    /// configuration.
    pub(super) fn advance(
        &self,
        current: Option<&Material>,
        trusted: &[String],
        now: i64,
    ) -> Result<Material, rcgen::Error> {
        let mut authorities: Vec<Authority> =
            current.map(|material| material.authorities.clone()).unwrap_or_default();
        authorities.retain(|authority| authority.ends > now);
        let newest_ends = authorities.last().map_or(now, |authority| authority.ends);
        if newest_ends - now < self.authority_life / 3 {
            authorities.push(Authority::new(now, self.authority_life)?);
        }
        let signs = |authority: &Authority| {
            authority.key.is_some()
                && now - authority.made >= self.overlap
                && !trusted.is_empty()
                && trusted.iter().all(|bundle| bundle.contains(authority.certificate.trim()))
        };
        // If no authority is trusted everywhere, the oldest that can sign: that is the one in use, if there is one.
        let signer = authorities
            .iter()
            .rposition(signs)
            .or_else(|| authorities.iter().position(|authority| authority.key.is_some()));
        let kept = current.map(|material| &material.serving);
        let serving = match signer.and_then(|signer| authorities.get(signer)) {
            Some(signer) if !kept.is_some_and(|serving| self.is_good(serving, signer, now)) => {
                signer.sign(&self.names, now, self.serving_life)?
            }
            _ => None,
        };
        if let Some(signer) = signer {
            authorities.iter_mut().take(signer).for_each(|older| older.key = None);
        }
        match serving.or_else(|| kept.cloned()) {
            Some(serving) => Ok(Material { authorities, serving }),
            // No authority has a key and there is nothing to serve. Only an unreadable Secret can lead here, so start
            // again.
            None => self.advance(None, trusted, now),
        }
    }

    fn is_good(&self, serving: &Serving, signer: &Authority, now: i64) -> bool {
        // A certificate that ends with its authority is renewed together with it.
        let enough =
            serving.ends - now >= self.serving_life / 3 || serving.ends == signer.ends && serving.ends > now;
        enough && serving.signed_by == signer.name && serving.names == self.names
    }
}

impl Material {
    /// The CA bundle for the API server: every authority, PEM.
    pub(super) fn bundle(&self) -> String {
        let certificates: Vec<&str> =
            self.authorities.iter().map(|authority| authority.certificate.trim()).collect();
        certificates.join("\n") + "\n"
    }

    pub(super) fn serving(&self) -> &Serving {
        &self.serving
    }
}

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
