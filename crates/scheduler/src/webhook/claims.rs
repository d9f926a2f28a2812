//! Claims on shares of GPUs (DRA): what the node agent would refuse when the pod starts is refused when the claim is written.
//!
//! A claim, a template or a DeviceClass is checked by itself. Whether the configuration of a claim fits that of its class shows when
//! the agent prepares the claim.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::resource::v1::{
    CapacityRequirements, DeviceClaim, DeviceClaimConfiguration, DeviceClassSpec, DeviceRequest,
    OpaqueDeviceConfiguration,
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use sluice_placement::annotations::{Amount, GpuRequest, keys, parse_quantity};
use sluice_placement::countable::WHOLE_MILLI;
use sluice_placement::share_config::{self, CAPACITIES, CLASSES, DRIVER, MEMORY, MILLI};

use super::review::{Decision, Operation, Request};

const GROUP: &str = "resource.k8s.io";
/// An amount of memory that no rule refuses, in place of one that the claim does not state.
const SOME_MEMORY: &str = "1Gi";
const SOME_PRIORITY: &str = "latency-critical";

/// The decision on a claim, a template or a class; `None` if the request is about another object.
pub(super) fn validate(request: &Request) -> Option<Decision> {
    let resource = &request.resource;
    if resource.group != GROUP || !matches!(request.operation, Operation::Create | Operation::Update) {
        return None;
    }
    let object = &request.object;
    let found = match resource.resource.as_str() {
        "resourceclaims" => read(object, "/spec/devices").map(|devices| of_claim(&devices)),
        "resourceclaimtemplates" => read(object, "/spec/spec/devices").map(|devices| of_claim(&devices)),
        "deviceclasses" => read(object, "/spec").map(|spec| of_class(&spec)),
        _ => return None,
    };
    Some(match found {
        Ok(found) if found.mistakes.is_empty() => {
            Decision::Admitted { patch: Vec::new(), warnings: found.warnings }
        }
        Ok(found) => Decision::Refused(found.mistakes.join("; ")),
        Err(why) => Decision::Refused(why),
    })
}

fn read<T: DeserializeOwned + Default>(object: &Value, path: &str) -> Result<T, String> {
    let Some(part) = object.pointer(path).filter(|part| !part.is_null()) else {
        return Ok(T::default());
    };
    T::deserialize(part).map_err(|error| format!("the object's {path} cannot be read: {error}"))
}

/// What is wrong, and what a user may not have meant.
#[derive(Default)]
struct Found {
    mistakes: Vec<String>,
    warnings: Vec<String>,
}

fn of_class(spec: &DeviceClassSpec) -> Found {
    let mut found = Found::default();
    for (at, config) in spec.config.iter().flatten().enumerate() {
        Setting::read(config.opaque.as_ref(), &[], &format!("spec.config[{at}]"), &mut found.mistakes);
    }
    found
}

fn of_claim(devices: &DeviceClaim) -> Found {
    let mut found = Found::default();
    let settings: Vec<Setting> = devices
        .config
        .iter()
        .flatten()
        .enumerate()
        .filter_map(|(at, config): (usize, &DeviceClaimConfiguration)| {
            let requests = config.requests.as_deref().unwrap_or_default();
            let place = format!("devices.config[{at}]");
            Setting::read(config.opaque.as_ref(), requests, &place, &mut found.mistakes)
        })
        .collect();
    for request in devices.requests.iter().flatten().flat_map(Wanted::all) {
        request.check(&settings, &mut found);
    }
    found
}

/// A configuration for this driver.
struct Setting<'a> {
    /// The requests that it is for; empty: all.
    requests: &'a [String],
    annotations: BTreeMap<String, String>,
    /// The mistakes that its values have, whatever request they are for.
    own: BTreeSet<String>,
}

impl<'a> Setting<'a> {
    /// `None`: it is for another driver. Its mistakes are appended.
    fn read(
        opaque: Option<&OpaqueDeviceConfiguration>,
        requests: &'a [String],
        place: &str,
        mistakes: &mut Vec<String>,
    ) -> Option<Self> {
        let opaque = opaque.filter(|opaque| opaque.driver == DRIVER)?;
        let mut wrong = Vec::new();
        let annotations = share_config::annotations(&opaque.parameters.0, &mut wrong);
        let own = mistakes_of(annotations.clone(), true);
        wrong.extend(own.iter().cloned());
        mistakes.extend(wrong.into_iter().map(|text| format!("{place}: {text}")));
        Some(Self { requests, annotations, own })
    }

    fn is_for(&self, request: &str) -> bool {
        let base = request.split('/').next();
        self.requests.is_empty()
            || self.requests.iter().any(|name| name == request || Some(name.as_str()) == base)
    }
}

/// What the parser of the annotations finds, in the words of a claim. `may_inherit`: another configuration may state the priority.
fn mistakes_of(mut annotations: BTreeMap<String, String>, may_inherit: bool) -> BTreeSet<String> {
    annotations.entry(keys::MEMORY.to_owned()).or_insert_with(|| SOME_MEMORY.to_owned());
    if may_inherit {
        annotations.entry(keys::PRIORITY.to_owned()).or_insert_with(|| SOME_PRIORITY.to_owned());
    }
    match GpuRequest::from_annotations(&annotations) {
        Ok(_) => BTreeSet::new(),
        Err(found) => {
            found.iter().map(|mistake| share_config::in_words_of_claims(&mistake.to_string())).collect()
        }
    }
}

/// A request of a claim, or one of its alternatives.
struct Wanted<'a> {
    /// `request`, or `request/alternative`.
    name: String,
    class: &'a str,
    capacity: Option<&'a CapacityRequirements>,
}

impl<'a> Wanted<'a> {
    fn all(request: &'a DeviceRequest) -> Vec<Self> {
        let exactly = request.exactly.iter().map(|exactly| Self {
            name: request.name.clone(),
            class: &exactly.device_class_name,
            capacity: exactly.capacity.as_ref(),
        });
        let alternatives = request.first_available.iter().flatten().map(|one| Self {
            name: format!("{}/{}", request.name, one.name),
            class: &one.device_class_name,
            capacity: one.capacity.as_ref(),
        });
        exactly.chain(alternatives).collect()
    }

    fn stated(&self, capacity: &str) -> Option<&'a str> {
        let requests = self.capacity?.requests.as_ref()?;
        requests.get(capacity).map(|quantity| quantity.0.as_str())
    }

    fn check(&self, settings: &[Setting<'_>], found: &mut Found) {
        let is_ours = CLASSES.contains(&self.class);
        let applied: Vec<&Setting<'_>> = settings.iter().filter(|one| one.is_for(&self.name)).collect();
        if !is_ours && applied.is_empty() {
            return;
        }
        let mut wrong = Vec::new();
        let mut annotations: BTreeMap<String, String> =
            applied.iter().flat_map(|one| one.annotations.clone()).collect();
        match self.stated(MILLI).map(|text| (text, parse_quantity(text))) {
            // A class may select devices with other defaults, so only the chart's own are known to mean a whole GPU.
            None if is_ours => _ = annotations.insert(keys::QUOTA.to_owned(), "1".to_owned()),
            None | Some((_, Some(0))) => {}
            Some((_, Some(milli))) if milli <= WHOLE_MILLI => {
                annotations.extend(
                    Amount::from_milli(milli).map(|share| (keys::QUOTA.to_owned(), share.to_string())),
                );
            }
            Some((text, _)) => wrong.push(format!(
                "capacity.{MILLI} is {text}, expected 0 to {WHOLE_MILLI}: thousandths of one GPU's time"
            )),
        }
        annotations.extend(self.stated(MEMORY).map(|text| (keys::MEMORY.to_owned(), text.to_owned())));
        let known: BTreeSet<&String> = applied.iter().flat_map(|one| &one.own).collect();
        let combined = mistakes_of(annotations, !is_ours);
        wrong.extend(combined.iter().filter(|text| !known.contains(text)).cloned());
        if is_ours {
            let names = self.capacity.iter().filter_map(|capacity| capacity.requests.as_ref()).flatten();
            let unknown = names.filter(|(name, _)| !CAPACITIES.contains(&name.as_str()));
            wrong.extend(unknown.map(|(name, _)| {
                format!("capacity.{name}: no such capacity; there are {}", CAPACITIES.join(", "))
            }));
            found.warnings.extend(self.warning());
        }
        found.mistakes.extend(wrong.into_iter().map(|text| format!("request {}: {text}", self.name)));
    }

    /// One of the two amounts without the other is rarely meant.
    fn warning(&self) -> Option<String> {
        let (stated, rest) = match (self.stated(MILLI), self.stated(MEMORY)) {
            (Some(_), None) => (MILLI, "memory"),
            (None, Some(_)) => (MEMORY, "time"),
            _ => return None,
        };
        Some(format!("request {}: it states {stated} only, so it asks for all {rest} of a GPU", self.name))
    }
}
