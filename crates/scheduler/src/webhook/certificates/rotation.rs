//! When certificates are renewed. Pure: the clock is an argument. The entry point is [`Policy::advance`].
//!
//! A new authority is published first and signs later: after it has been in every webhook configuration for `overlap`.
//! So no API server meets a certificate that it does not trust yet. The old authority stays published until it ends,
//! for replicas that still serve what it signed.

use serde::{Deserialize, Serialize};

use super::issue::{Authority, Serving};

/// Lifetimes in seconds.
#[derive(Clone, Debug)]
pub(in crate::webhook) struct Policy {
    /// Host names of the certificate.
    pub(in crate::webhook) names: Vec<String>,
    /// Lifetime of authorities.
    pub(in crate::webhook) authority_life: i64,
    /// Lifetime of serving certificates.
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
    ///
    /// # Errors
    /// A key cannot be created.
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

    /// The serving certificate.
    pub(super) fn serving(&self) -> &Serving {
        &self.serving
    }
}
