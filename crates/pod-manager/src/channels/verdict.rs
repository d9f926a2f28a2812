//! Whether channel groups are controlled under this driver: by the verdict of a self-test, or without one by its branch.

use crate::config::{ClientSource, Config};
use sluice_nvrm::Driver;
use sluice_nvrm::selftest::{Allows, Verdict, boot};
use std::path::Path;
use tracing::{info, warn};

/// What of the driver's controls to build on, with the reason in the log.
pub(crate) fn controls(config: &Config, driver: &Driver) -> Allows {
    let gpu = match &config.clients {
        ClientSource::Agent(agent) => Some(agent.gpu_uuid.as_str()),
        ClientSource::File { .. } => None,
    };
    let verdict = config.self_test.as_deref().and_then(read);
    match verdict.filter(|verdict| verdict.holds_for(driver, gpu, &boot())) {
        Some(verdict) => by_verdict(&verdict),
        None => by_branch(driver),
    }
}

fn by_verdict(verdict: &Verdict) -> Allows {
    let Verdict { about, slices, stops, .. } = verdict;
    match verdict.allows() {
        Allows::Everything => info!(driver = about.driver, "the self-test has proven the driver's controls"),
        Allows::Stops => {
            warn!(driver = about.driver, %slices, "time slices have no effect that could be built on: turns are given without");
        }
        Allows::Nothing => {
            warn!(driver = about.driver, %stops, "the self-test found that channel groups cannot be stopped: everybody takes turns by token");
        }
    }
    verdict.allows()
}

/// Nobody has compared the layouts of an unknown branch with ours: a control could do something else.
fn by_branch(driver: &Driver) -> Allows {
    let Driver::Unknown(version) = driver else { return Allows::Everything };
    warn!(
        version,
        "nobody has compared this driver's layouts: nothing is controlled, everybody takes turns by token. \
         `sluice self-test` proves what its controls do; --controls any-driver makes them all the same"
    );
    Allows::Nothing
}

fn read(path: &Path) -> Option<Verdict> {
    let read = std::fs::read(path).map_err(|why| why.to_string());
    let verdict = read.and_then(|text| serde_json::from_slice(&text).map_err(|why| why.to_string()));
    verdict.map_err(|why| warn!(path = %path.display(), why, "no verdict of a self-test")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_nvrm::selftest::{About, Effect};

    /// Decides for an unknown and for a known driver, with a verdict about the first.
    fn decide(stops: Effect, slices: Effect) -> [Allows; 2] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("verdict.json");
        let about = About::now("700.1", "GPU-1");
        let verdict = Verdict { about, slices, stops, counts: Effect::Proven };
        std::fs::write(&path, serde_json::to_vec(&verdict).unwrap()).unwrap();
        let config = Config { self_test: Some(path), ..Config::new("socket", "resources") };
        let drivers = [Driver::Unknown("700.1".into()), Driver::Compared("580.1".into())];
        drivers.map(|driver| controls(&config, &driver))
    }

    #[test]
    fn a_verdict_opens_an_unknown_driver_and_says_nothing_of_another() {
        let (proven, all, none) = (Effect::Proven, Allows::Everything, Allows::Nothing);
        assert_eq!(decide(proven.clone(), proven.clone()), [all, all]);
        assert_eq!(decide(proven.clone(), Effect::NoEffect), [Allows::Stops, all]);
        assert_eq!(decide(Effect::NoEffect, proven.clone()), [none, all]);
        assert_eq!(decide(Effect::inconclusive("busy"), proven), [none, all], "as without one");
    }

    #[test]
    fn a_known_driver_that_was_found_to_do_nothing_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("verdict.json");
        let about = About::now("580.1", "GPU-1");
        let verdict =
            Verdict { about, slices: Effect::NoEffect, stops: Effect::NoEffect, counts: Effect::Proven };
        std::fs::write(&path, serde_json::to_vec(&verdict).unwrap()).unwrap();
        let config = Config { self_test: Some(path.clone()), ..Config::new("socket", "resources") };
        let compared = Driver::Compared("580.1".into());
        assert_eq!(controls(&config, &compared), Allows::Nothing);
        std::fs::write(&path, "not a verdict").unwrap();
        assert_eq!(controls(&config, &compared), Allows::Everything, "as without one");
    }
}
