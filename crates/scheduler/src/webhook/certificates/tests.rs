//! Years of certificates, with a fake cluster and a fake clock.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum_server::tls_rustls::RustlsConfig;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};

use super::files::Files;
use super::renewer::{CertificateRenewer, Cluster, Stored, Written};
use super::rotation::{Authority, Material, Policy, Serving};
use super::tls;
use crate::webhook::status::Status;

pub(in crate::webhook) const NAME: &str = "sluice-webhook.sluice.svc";
const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;
const START: i64 = 1_800_000_000;

/// A cluster with one Secret and two webhook configurations.
#[derive(Debug, Default)]
pub(in crate::webhook) struct FakeCluster {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    secret: Option<String>,
    version: u64,
    bundles: [String; 2],
    /// Writes of other replicas between our read and our write.
    rivals: Vec<Material>,
    down: bool,
    writes: usize,
}

impl FakeCluster {
    pub(in crate::webhook) fn bundle(&self) -> String {
        self.state.lock().unwrap().bundles[0].clone()
    }
}

impl Cluster for Arc<FakeCluster> {
    async fn read(&self) -> anyhow::Result<Stored> {
        let state = self.state.lock().unwrap();
        anyhow::ensure!(!state.down, "the API server is away");
        let material = state.secret.as_ref().and_then(|text| serde_json::from_str(text).ok());
        Ok(Stored { material, version: state.secret.as_ref().map(|_| state.version.to_string()) })
    }

    async fn write(&self, material: &Material, version: Option<&str>) -> anyhow::Result<Written> {
        let mut state = self.state.lock().unwrap();
        if let Some(rival) = state.rivals.pop() {
            state.secret = Some(serde_json::to_string(&rival)?);
            state.version += 1;
        }
        if state.secret.as_ref().map(|_| state.version.to_string()).as_deref() != version {
            return Ok(Written::Conflict);
        }
        state.secret = Some(serde_json::to_string(material)?);
        state.version += 1;
        state.writes += 1;
        Ok(Written::Stored)
    }

    async fn read_bundles(&self) -> anyhow::Result<Vec<String>> {
        Ok(self.state.lock().unwrap().bundles.to_vec())
    }

    async fn write_bundles(&self, bundle: &str) -> anyhow::Result<()> {
        self.state.lock().unwrap().bundles = [bundle.to_owned(), bundle.to_owned()];
        Ok(())
    }
}

fn policy() -> Policy {
    Policy { names: vec![NAME.to_owned()], authority_life: 300 * DAY, serving_life: 30 * DAY, overlap: HOUR }
}

/// A replica on this clock.
pub(in crate::webhook) fn renewer(
    cluster: &Arc<FakeCluster>,
    clock: &Arc<AtomicI64>,
) -> CertificateRenewer<Arc<FakeCluster>> {
    let clock = Arc::clone(clock);
    CertificateRenewer {
        cluster: Arc::clone(cluster),
        policy: policy(),
        clock: Arc::new(move || clock.load(Ordering::SeqCst)),
        server: RustlsConfig::from_config(tls::without_certificate().unwrap()),
        status: Arc::new(Status::new().unwrap()),
    }
}

fn clock(now: i64) -> Arc<AtomicI64> {
    Arc::new(AtomicI64::new(now))
}

/// Whether an API server that trusts this bundle accepts this certificate at that time.
fn accepts(bundle: &str, serving: &Serving, now: i64) -> Result<(), String> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
    let verifier = verifier.map_err(|error| error.to_string())?;
    let certificate = CertificateDer::from_pem_slice(serving.certificate.as_bytes()).unwrap();
    let now = UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(now).unwrap()));
    let name = ServerName::try_from(NAME).unwrap();
    verifier
        .verify_server_cert(&certificate, &[], &name, &[], now)
        .map(drop)
        .map_err(|error| error.to_string())
}

#[tokio::test]
async fn first_check_creates_stores_publishes_and_serves() {
    let (cluster, clock) = (Arc::new(FakeCluster::default()), clock(START));
    let renewer = renewer(&cluster, &clock);
    let material = renewer.renew_if_due(None).await.unwrap();
    accepts(&cluster.bundle(), material.serving(), START).unwrap();
    assert!(accepts(&cluster.bundle(), material.serving(), START + 31 * DAY).is_err(), "it ends");
    let again = renewer.renew_if_due(Some(&material)).await.unwrap();
    assert_eq!(again, material);
    assert_eq!(cluster.state.lock().unwrap().writes, 1, "a second check finds nothing to do");
}

#[tokio::test]
async fn every_served_certificate_is_trusted_over_years() {
    let (cluster, clock) = (Arc::new(FakeCluster::default()), clock(START));
    let replicas = [renewer(&cluster, &clock), renewer(&cluster, &clock)];
    let mut served: [Option<Material>; 2] = [None, None];
    let (mut authorities, mut certificates) = (Vec::new(), 0);
    for step in 0..(3 * 365 * 2) {
        // The second replica checks half a day after the first, far later than in a real cluster.
        let now = START + step * DAY / 2;
        clock.store(now, Ordering::SeqCst);
        let replica = usize::try_from(step % 2).unwrap();
        let believed = cluster.bundle();
        let material = replicas[replica].renew_if_due(served[replica].as_ref()).await.unwrap();
        certificates +=
            usize::from(served[replica].as_ref().is_none_or(|old| old.serving() != material.serving()));
        served[replica] = Some(material);
        for material in served.iter().flatten() {
            accepts(&cluster.bundle(), material.serving(), now)
                .unwrap_or_else(|error| panic!("day {}: {error}", step / 2));
            if step > 0 {
                // API servers that have not yet seen the newest configuration.
                accepts(&believed, material.serving(), now)
                    .unwrap_or_else(|error| panic!("day {}: {error}", step / 2));
            }
        }
        let newest = served[replica].as_ref().unwrap().authorities.last().unwrap().name.clone();
        if authorities.last() != Some(&newest) {
            authorities.push(newest);
        }
        let kept = &served[replica].as_ref().unwrap().authorities;
        assert!(kept.len() <= 2, "the old authority is removed when it ends");
    }
    assert!(authorities.len() >= 5, "authorities were renewed: {authorities:?}");
    assert!(certificates >= 100, "certificates were renewed, by both replicas: {certificates}");
}

#[tokio::test]
async fn authority_signs_only_after_the_overlap() {
    let (cluster, clock) = (Arc::new(FakeCluster::default()), clock(START));
    let renewer = renewer(&cluster, &clock);
    let first = renewer.renew_if_due(None).await.unwrap();
    let at = |now: i64| clock.store(now, Ordering::SeqCst);
    at(START + 201 * DAY);
    let published = renewer.renew_if_due(Some(&first)).await.unwrap();
    assert_eq!(published.authorities.len(), 2);
    assert_eq!(published.serving().signed_by, first.authorities[0].name);
    at(START + 201 * DAY + HOUR / 2);
    let early = renewer.renew_if_due(Some(&published)).await.unwrap();
    assert_eq!(early.serving(), published.serving());
    // One configuration does not get the new authority: it waits, however long.
    cluster.state.lock().unwrap().bundles[1] = first.bundle();
    at(START + 201 * DAY + 2 * HOUR);
    let held = renewer.renew_if_due(Some(&early)).await.unwrap();
    assert_eq!(held.serving().signed_by, first.authorities[0].name);
    let signed = renewer.renew_if_due(Some(&held)).await.unwrap();
    assert_eq!(signed.serving().signed_by, published.authorities[1].name);
    assert_eq!(signed.authorities[0].key, None, "the old authority does not sign any more");
}

#[tokio::test]
async fn one_of_two_concurrent_replicas_wins_and_both_serve_its_certificate() {
    let (cluster, clock) = (Arc::new(FakeCluster::default()), clock(START));
    let rival = policy().advance(None, &[], START).unwrap();
    cluster.state.lock().unwrap().rivals.push(rival.clone());
    let material = renewer(&cluster, &clock).renew_if_due(None).await.unwrap();
    assert_eq!(material, rival);
    assert_eq!(cluster.bundle(), rival.bundle());
}

#[tokio::test]
async fn foreign_changes_are_repaired_at_the_next_check() {
    let (cluster, clock) = (Arc::new(FakeCluster::default()), clock(START));
    let renewer = renewer(&cluster, &clock);
    let first = renewer.renew_if_due(None).await.unwrap();
    cluster.state.lock().unwrap().bundles[1].clear();
    renewer.renew_if_due(Some(&first)).await.unwrap();
    assert_eq!(cluster.state.lock().unwrap().bundles[1], first.bundle());
    cluster.state.lock().unwrap().secret = Some("{broken".to_owned());
    let second = renewer.renew_if_due(Some(&first)).await.unwrap();
    assert_ne!(second, first);
    accepts(&cluster.bundle(), second.serving(), START).unwrap();
    cluster.state.lock().unwrap().down = true;
    let error = renewer.renew_if_due(Some(&second)).await.unwrap_err();
    assert_eq!(format!("{error:#}"), "cannot read the Secret: the API server is away");
}

#[test]
fn changed_names_require_a_new_certificate() {
    let first = policy().advance(None, &[], START).unwrap();
    let renamed = Policy { names: vec![NAME.to_owned(), "10.0.0.1".to_owned()], ..policy() };
    let second = renamed.advance(Some(&first), &[first.bundle()], START).unwrap();
    assert_ne!(second.serving(), first.serving());
    assert_eq!(second.authorities, first.authorities);
}

#[test]
fn end_of_a_certificate_is_parsed() {
    // Before and after 2050: DER encodes the year differently.
    for now in [START, START + 30 * 365 * DAY] {
        let authority = Authority::new(now, 100 * DAY).unwrap();
        let serving = authority.sign(&[NAME.to_owned()], now, DAY).unwrap().unwrap();
        assert_eq!(tls::end_of(serving.certificate.as_bytes()).unwrap(), now + DAY);
        assert_eq!(tls::end_of(authority.certificate.as_bytes()).unwrap(), now + 100 * DAY);
        let der = CertificateDer::from_pem_slice(serving.certificate.as_bytes()).unwrap();
        for end in 0..der.len().min(200) {
            assert_eq!(tls::not_after(&der[..end]), None);
        }
    }
}

#[tokio::test]
async fn changed_files_are_served_and_invalid_ones_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let write = |serving: &Serving| {
        std::fs::write(folder.path().join("tls.crt"), &serving.certificate).unwrap();
        std::fs::write(folder.path().join("tls.key"), &serving.key).unwrap();
    };
    let server = RustlsConfig::from_config(tls::without_certificate().unwrap());
    let status = Arc::new(Status::new().unwrap());
    let files =
        Files { folder: folder.path().to_owned(), server: server.clone(), status: Arc::clone(&status) };
    let error = files.reload_if_changed(None).await.unwrap_err();
    assert!(format!("{error:#}").contains("tls.crt"), "{error:#}");
    assert_eq!(status.ready(), Err("no certificate yet"));

    let (first, second) =
        (policy().advance(None, &[], START).unwrap(), policy().advance(None, &[], START).unwrap());
    write(first.serving());
    let without_certificate = server.get_inner();
    let pair = files.reload_if_changed(None).await.unwrap();
    let with_first = server.get_inner();
    assert!(!Arc::ptr_eq(&without_certificate, &with_first));
    assert_eq!(status.ready(), Ok(()));
    files.reload_if_changed(Some(&pair)).await.unwrap();
    assert!(Arc::ptr_eq(&with_first, &server.get_inner()), "nothing changed");

    std::fs::write(folder.path().join("tls.crt"), &second.serving().certificate).unwrap();
    files.reload_if_changed(Some(&pair)).await.unwrap_err();
    assert!(Arc::ptr_eq(&with_first, &server.get_inner()), "certificate and key of different pairs");
    write(second.serving());
    files.reload_if_changed(Some(&pair)).await.unwrap();
    assert!(!Arc::ptr_eq(&with_first, &server.get_inner()));
}
