use std::collections::BTreeMap;

use super::*;
use crate::prepared_claims::{GpuShare, PreparedClaim};

fn claims(pod: &str) -> PreparedClaims {
    let annotations = BTreeMap::from([("sluice.dev/quota".to_owned(), "0.300".to_owned())]);
    let share =
        GpuShare { gpu: "GPU-a".into(), request: "gpu".into(), share_id: Some("s".into()), annotations };
    let claim = PreparedClaim {
        namespace: "ml".into(),
        name: "third".into(),
        pod_uid: format!("uid-{pod}"),
        pod: pod.into(),
        shares: vec![share],
    };
    BTreeMap::from([("claim-uid".to_owned(), claim)])
}

#[test]
fn last_write_is_read_back_and_no_file_means_no_claims() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = Checkpoint::in_folder(folder.path());
    assert_eq!(checkpoint.read().unwrap(), PreparedClaims::new());
    checkpoint.write(&claims("a")).unwrap();
    checkpoint.write(&claims("b")).unwrap();
    assert_eq!(checkpoint.read().unwrap(), claims("b"));
    // What an interrupted write leaves behind counts for nothing.
    fs::write(folder.path().join("claims.new"), "{").unwrap();
    assert_eq!(checkpoint.read().unwrap(), claims("b"));
}

#[test]
fn file_of_another_form_or_version_is_an_error_that_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = Checkpoint::in_folder(folder.path());
    for (text, part) in [
        (r#"{"version": 2, "claims": {}}"#, "has the version 2, expected 1"),
        ("{", "is no list of prepared claims"),
        (r#"{"version": 1, "claims": {}, "more": 1}"#, "is no list of prepared claims"),
    ] {
        fs::write(folder.path().join("claims.json"), text).unwrap();
        let why = format!("{:#}", checkpoint.read().unwrap_err());
        assert!(why.contains("claims.json") && why.contains(part), "{text}: {why}");
    }
}
