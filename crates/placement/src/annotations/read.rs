//! Reads a request from annotations and reports every mistake at once; reads the assigned GPUs.

use std::collections::BTreeMap;

use sluice_units::Share;

use super::amount::{self, Amount, LIMIT_ALLOWED, QUOTA_ALLOWED};
use super::lists::{is_label, is_model, is_uuid, nearest, parse_list};
use super::mistake::{Mistake, Mistakes};
use super::{Class, GpuRequest, keys};
use crate::demand::Demand;
use crate::reasons::format_share;
use sluice_units::{parse_duration, parse_quantity};

/// Less memory than a context needs is a typing error, such as `128m` (an eighth of a byte).
pub(super) const MIN_MEMORY: u64 = 1 << 20;

const PRIORITY_ALLOWED: &str =
    "latency-critical, high, normal, best-effort, or 0 to 3 (0 is latency-critical)";
const GPUS_ALLOWED: &str = "a number of GPUs, 1 to 64";
const MEMORY_ALLOWED: &str = "a Kubernetes quantity of bytes, at least 1Mi and below 16Ei, e.g. 8Gi or 500M";
const FLAG_ALLOWED: &str = "true or false";
const SLO_ALLOWED: &str = "a duration above 0, e.g. 5ms or 1.5s";
const MODEL_ALLOWED: &str =
    "GPU models as `sluice.dev/gpu.model` on nodes shows them, comma-separated, none twice";
const UUID_ALLOWED: &str = "GPU UUIDs (GPU-… or MIG-…), comma-separated, none twice";
const CONTAINER_ALLOWED: &str = "names of the pod's containers, comma-separated, none twice";
const GANG_ALLOWED: &str = "a name of lower-case letters, digits and dashes, at most 63";

impl GpuRequest {
    /// The request of a pod; `None` if it has none of the keys. Unknown keys are ignored, so that an older daemon can
    /// read the pods that a newer webhook admitted.
    ///
    /// # Errors
    /// Every mistake at once: key, value, and the allowed values.
    pub fn from_annotations(annotations: &BTreeMap<String, String>) -> Result<Option<Self>, Mistakes> {
        let mut reader = Reader { annotations, mistakes: Vec::new() };
        let request = reader.request();
        Mistakes::check(reader.mistakes).map(|()| request)
    }

    /// As [`from_annotations`](Self::from_annotations), but refuses unknown `sluice.dev/` keys: for the webhook, where
    /// a typing error must not result in a pod without limits.
    ///
    /// # Errors
    /// Every mistake at once: key, value, and the allowed values.
    pub fn admit(annotations: &BTreeMap<String, String>) -> Result<Option<Self>, Mistakes> {
        let mut mistakes = unknown(annotations);
        let request = Self::from_annotations(annotations).unwrap_or_else(|more| {
            mistakes.extend(more);
            None
        });
        Mistakes::check(mistakes).map(|()| request)
    }
}

/// The mistake in the value of a key of [`keys::CHANGEABLE`], if there is one.
pub fn changeable_mistake(key: &str, value: &str) -> Option<Mistake> {
    parse_flag(value).is_none().then(|| Mistake::new(key, value, FLAG_ALLOWED))
}

fn parse_flag(text: &str) -> Option<bool> {
    text.parse().ok()
}

/// UUIDs of the pod's assigned GPUs; `None` before the assignment.
///
/// # Errors
/// When the annotation is no list of different UUIDs.
pub fn assigned(annotations: &BTreeMap<String, String>) -> Result<Option<Vec<String>>, Mistake> {
    let Some(text) = annotations.get(keys::ASSIGNED_GPU) else {
        return Ok(None);
    };
    let uuids = parse_list(text, is_uuid);
    uuids
        .map(Some)
        .ok_or_else(|| Mistake::new(keys::ASSIGNED_GPU, text, "GPU UUIDs, comma-separated, none twice"))
}

/// A class by its name or level.
pub(super) fn parse_class(text: &str) -> Option<Class> {
    let mut all = Class::ALL.into_iter().zip(["0", "1", "2", "3"]);
    all.find(|(class, level)| class.name() == text || *level == text).map(|(class, _)| class)
}

/// A mistake for each `sluice.dev/` key that no user may put on a pod.
fn unknown(annotations: &BTreeMap<String, String>) -> Vec<Mistake> {
    let prefixed = annotations.iter().filter(|(key, _)| key.starts_with(keys::PREFIX));
    let unknown =
        prefixed.filter(|(key, _)| !keys::USER.contains(&key.as_str()) && *key != keys::ASSIGNED_GPU);
    unknown
        .map(|(key, value)| {
            let allowed = match nearest(key, &keys::USER) {
                Some(near) => format!("no such key; did you mean {near}?"),
                None => format!("no such key; there are {}", keys::USER.join(", ")),
            };
            Mistake::new(key, value, allowed)
        })
        .collect()
}

struct Reader<'a> {
    annotations: &'a BTreeMap<String, String>,
    mistakes: Vec<Mistake>,
}

impl Reader<'_> {
    fn request(&mut self) -> Option<GpuRequest> {
        if !keys::USER.iter().any(|key| self.annotations.contains_key(*key)) {
            return None;
        }
        let class = self.value(keys::PRIORITY, PRIORITY_ALLOWED, parse_class);
        let gpus = self.value(keys::GPUS, GPUS_ALLOWED, amount::parse_gpus);
        let quota = self.value(keys::QUOTA, QUOTA_ALLOWED, amount::parse_quota);
        let limit = self.value(keys::LIMIT, LIMIT_ALLOWED, amount::parse_share);
        let memory_bytes = self.value(keys::MEMORY, MEMORY_ALLOWED, |text| {
            parse_quantity(text).filter(|bytes| *bytes >= MIN_MEMORY)
        });
        let overcommits = self.value(keys::MEMORY_OVERCOMMIT, FLAG_ALLOWED, parse_flag);
        let suspended = self.value(keys::SUSPEND, FLAG_ALLOWED, parse_flag);
        let slo_ns = self.value(keys::SLO, SLO_ALLOWED, |text| parse_duration(text).filter(|ns| *ns > 0));
        let models = self.value(keys::GPU_MODEL, MODEL_ALLOWED, |text| parse_list(text, is_model));
        let uuids = self.value(keys::GPU_UUID, UUID_ALLOWED, |text| parse_list(text, is_uuid));
        let containers = self.value(keys::CONTAINER, CONTAINER_ALLOWED, |text| parse_list(text, is_label));
        let gang = self.value(keys::GANG, GANG_ALLOWED, |text| is_label(text).then(|| text.to_owned()));
        let class = class.unwrap_or_default();
        let quota = quota.unwrap_or(Amount::Share(Share::ZERO));
        let request = GpuRequest {
            class,
            demand: Demand {
                gpus: match quota {
                    Amount::Share(_) => gpus.unwrap_or(1),
                    Amount::Whole(gpus) => gpus,
                },
                models: models.unwrap_or_default(),
                uuids: uuids.unwrap_or_default(),
                latency_critical: class.is_latency_critical(),
                overcommits: overcommits.unwrap_or(false),
                ..Demand::new(quota, memory_bytes)
            },
            limit: limit.unwrap_or(Share::ONE),
            slo_ns,
            containers: containers.unwrap_or_default(),
            suspended: suspended.unwrap_or(false),
            gang,
        };
        self.check_combinations(&request, quota);
        Some(request)
    }

    /// The value of a key. An invalid one is recorded as a mistake and counts as absent.
    fn value<T>(&mut self, key: &str, allowed: &str, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
        let text = self.annotations.get(key)?;
        let value = parse(text);
        if value.is_none() {
            self.mistakes.push(Mistake::new(key, text, allowed));
        }
        value
    }

    /// Checks the rules between keys, skipping keys whose own value was invalid.
    fn check_combinations(&mut self, request: &GpuRequest, quota: Amount) {
        let mut wrong = Vec::new();
        match quota {
            Amount::Share(quota) => {
                if request.limit < quota {
                    let quota = format_share(quota.ppm().into());
                    wrong.push((keys::LIMIT, format!("at least {} ({quota})", keys::QUOTA)));
                }
                if !self.has(keys::QUOTA) && !self.has(keys::MEMORY) {
                    let why =
                        format!("it may only be left out beside {}, whose share it then is", keys::QUOTA);
                    self.mistakes.push(Mistake::missing(keys::MEMORY, why));
                }
            }
            Amount::Whole(gpus) => {
                let why = format!("not beside {gpus} whole GPUs, which come with all time and memory");
                wrong.extend([keys::LIMIT, keys::MEMORY].map(|key| (key, why.clone())));
                let why = format!(
                    "not beside {gpus} whole GPUs: {} is then their number, and not a share of each GPU",
                    keys::QUOTA
                );
                wrong.push((keys::GPUS, why));
            }
        }
        let gpus = request.demand.gpus;
        if request.demand.uuids.len() < gpus as usize {
            let by = if matches!(quota, Amount::Whole(_)) { keys::QUOTA } else { keys::GPUS };
            wrong.push((keys::GPU_UUID, format!("at least {gpus} GPUs, as {by} asks for")));
        }
        if request.class != Class::LatencyCritical && self.good(keys::PRIORITY) {
            wrong.push((keys::SLO, format!("only with {}: latency-critical", keys::PRIORITY)));
        }
        if request.demand.overcommits {
            wrong.extend(self.against_overcommit(request).map(|why| (keys::MEMORY_OVERCOMMIT, why)));
        }
        for (key, allowed) in wrong {
            if let Some(text) = self.annotations.get(key).filter(|_| self.good(key)) {
                self.mistakes.push(Mistake::new(key, text, allowed));
            }
        }
    }

    /// Why the memory of the pod cannot leave the GPU, if it cannot.
    fn against_overcommit(&self, request: &GpuRequest) -> Option<String> {
        if request.class == Class::LatencyCritical {
            Some(format!("not with {}: latency-critical, whose memory never leaves the GPU", keys::PRIORITY))
        } else if request.demand.gpus > 1 {
            Some("only with one GPU: memory that leaves it cannot be mapped on others".to_owned())
        } else if request.gang.is_some() {
            Some(format!("not beside {}: the GPUs of a gang map memory of each other", keys::GANG))
        } else if request.demand.is_whole() {
            Some(format!("only beside {}: a whole GPU has no other pods", keys::MEMORY))
        } else {
            None
        }
    }

    fn has(&self, key: &str) -> bool {
        self.annotations.contains_key(key)
    }

    fn good(&self, key: &str) -> bool {
        !self.mistakes.iter().any(|mistake| mistake.key == key)
    }
}
