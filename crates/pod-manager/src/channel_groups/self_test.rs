//! Which driver controls the manager uses: by the result of a self-test, or without one by the driver's branch.

use crate::config::{ClientSource, Config};
use sluice_nvrm::DriverVersion;
use sluice_nvrm::self_test::{SelfTestResult, UsableControls, boot_id};
use std::path::Path;
use tracing::{info, warn};

/// The driver controls to use, with the reason in the log.
pub(crate) fn allowed_controls(config: &Config, driver: &DriverVersion) -> UsableControls {
    let gpu = match &config.clients {
        ClientSource::Agent(agent) => Some(agent.gpu_uuid.as_str()),
        ClientSource::File { .. } => None,
    };
    let result = config.self_test.as_deref().and_then(read);
    match result.filter(|result| result.applies_to(driver, gpu, &boot_id())) {
        Some(result) => by_result(&result),
        None => by_branch(driver),
    }
}

fn by_result(result: &SelfTestResult) -> UsableControls {
    let SelfTestResult { about, slices, stops, .. } = result;
    match result.usable_controls() {
        UsableControls::All => info!(driver = about.driver, "the self-test has proven the driver's controls"),
        UsableControls::DisableOnly => {
            warn!(driver = about.driver, %slices, "time slices have no proven effect: groups are only enabled and disabled");
        }
        UsableControls::NoControls => {
            warn!(driver = about.driver, %stops, "the self-test found that channel groups cannot be disabled: all processes are scheduled by token");
        }
    }
    result.usable_controls()
}

/// The layouts of an unknown branch were not compared with those in this program: a control could do something else.
fn by_branch(driver: &DriverVersion) -> UsableControls {
    let DriverVersion::Unknown(version) = driver else { return UsableControls::All };
    warn!(
        version,
        "the layouts of this driver were not compared: nothing is controlled, all processes are scheduled by token. \
         `sluice self-test` proves what its controls do; --controls any-driver makes them without proof"
    );
    UsableControls::NoControls
}

fn read(path: &Path) -> Option<SelfTestResult> {
    let read = std::fs::read(path).map_err(|why| why.to_string());
    let result = read.and_then(|text| serde_json::from_slice(&text).map_err(|why| why.to_string()));
    result.map_err(|why| warn!(path = %path.display(), why, "no result of a self-test")).ok()
}

#[cfg(test)]
mod tests;
