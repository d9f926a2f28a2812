//! Which driver controls the manager uses: by the result of a self-test, or without one by the driver's branch.

use crate::config::{ClientSource, Config};
use sluice_nvrm::Driver;
use sluice_nvrm::selftest::{Allows, Verdict, boot};
use std::path::Path;
use tracing::{info, warn};

/// The driver controls to use, with the reason in the log.
pub(crate) fn allowed_controls(config: &Config, driver: &Driver) -> Allows {
    let gpu = match &config.clients {
        ClientSource::Agent(agent) => Some(agent.gpu_uuid.as_str()),
        ClientSource::File { .. } => None,
    };
    let result = config.self_test.as_deref().and_then(read);
    match result.filter(|result| result.holds_for(driver, gpu, &boot())) {
        Some(result) => by_result(&result),
        None => by_branch(driver),
    }
}

fn by_result(result: &Verdict) -> Allows {
    let Verdict { about, slices, stops, .. } = result;
    match result.allows() {
        Allows::Everything => info!(driver = about.driver, "the self-test has proven the driver's controls"),
        Allows::Stops => {
            warn!(driver = about.driver, %slices, "time slices have no proven effect: groups are only enabled and disabled");
        }
        Allows::Nothing => {
            warn!(driver = about.driver, %stops, "the self-test found that channel groups cannot be disabled: all processes are scheduled by token");
        }
    }
    result.allows()
}

/// The layouts of an unknown branch were not compared with those in this program: a control could do something else.
fn by_branch(driver: &Driver) -> Allows {
    let Driver::Unknown(version) = driver else { return Allows::Everything };
    warn!(
        version,
        "the layouts of this driver were not compared: nothing is controlled, all processes are scheduled by token. \
         `sluice self-test` proves what its controls do; --controls any-driver makes them without proof"
    );
    Allows::Nothing
}

fn read(path: &Path) -> Option<Verdict> {
    let read = std::fs::read(path).map_err(|why| why.to_string());
    let result = read.and_then(|text| serde_json::from_slice(&text).map_err(|why| why.to_string()));
    result.map_err(|why| warn!(path = %path.display(), why, "no result of a self-test")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_nvrm::selftest::{About, Effect};

    /// Decides for an unknown and for a known driver, with a result about the first.
    fn decide(stops: Effect, slices: Effect) -> [Allows; 2] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("verdict.json");
        let about = About::now("700.1", "GPU-1");
        let result = Verdict { about, slices, stops, counts: Effect::Proven };
        std::fs::write(&path, serde_json::to_vec(&result).unwrap()).unwrap();
        let config = Config { self_test: Some(path), ..Config::new("socket", "resources") };
        let drivers = [Driver::Unknown("700.1".into()), Driver::Compared("580.1".into())];
        drivers.map(|driver| allowed_controls(&config, &driver))
    }

    #[test]
    fn result_about_an_unknown_driver_decides_for_it_and_for_no_other() {
        let (proven, all, none) = (Effect::Proven, Allows::Everything, Allows::Nothing);
        assert_eq!(decide(proven.clone(), proven.clone()), [all, all]);
        assert_eq!(decide(proven.clone(), Effect::NoEffect), [Allows::Stops, all]);
        assert_eq!(decide(Effect::NoEffect, proven.clone()), [none, all]);
        assert_eq!(decide(Effect::inconclusive("busy"), proven), [none, all], "as without one");
    }

    #[test]
    fn known_driver_without_proven_effect_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("verdict.json");
        let about = About::now("580.1", "GPU-1");
        let result =
            Verdict { about, slices: Effect::NoEffect, stops: Effect::NoEffect, counts: Effect::Proven };
        std::fs::write(&path, serde_json::to_vec(&result).unwrap()).unwrap();
        let config = Config { self_test: Some(path.clone()), ..Config::new("socket", "resources") };
        let compared = Driver::Compared("580.1".into());
        assert_eq!(allowed_controls(&config, &compared), Allows::Nothing);
        std::fs::write(&path, "not a verdict").unwrap();
        assert_eq!(allowed_controls(&config, &compared), Allows::Everything, "as without one");
    }
}
