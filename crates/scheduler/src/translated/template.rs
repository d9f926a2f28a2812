//! The record of a pod's annotations to a ResourceClaimTemplate. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{ResourceClaimSpec, ResourceClaimTemplate, ResourceClaimTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use sluice_placement::Demand;
use sluice_placement::annotations::{GpuRequest, Mistake, keys};
use sluice_placement::share_config::{self, CRITICAL, DRIVER, MEMORY, MIG_CLASS, MILLI};

use super::{CLAIM, RECORD};

/// Bytes of the hash in a template's name.
const HASH_BYTES: usize = 16;
const PPM_PER_MILLI: u32 = 1000;
/// In the model's name of an instance of a GPU in MIG mode, as the driver or as the node's label spells it.
const INSTANCE_MODELS: [&str; 2] = [" MIG ", "-MIG-"];
/// The beginning of an instance's UUID.
const INSTANCE_UUIDS: &str = "MIG-";

/// The annotations as one value.
pub(crate) fn record(annotations: &BTreeMap<String, String>) -> String {
    json!(annotations).to_string()
}

/// The name of the template for pods with this record.
pub(crate) fn template_name(record: &str) -> String {
    let hash = Sha256::digest(record.as_bytes());
    let hash: String = hash.iter().take(HASH_BYTES).map(|byte| format!("{byte:02x}")).collect();
    format!("{CLAIM}-{hash}")
}

/// The claim that asks for what the annotations ask for.
///
/// # Errors
/// What no claim can ask for.
pub(crate) fn claim_spec(
    request: &GpuRequest,
    annotations: &BTreeMap<String, String>,
) -> Result<ResourceClaimSpec, Mistake> {
    let demand = &request.demand;
    if demand.overcommits {
        let why =
            "not in a namespace whose pods get claims: the cluster adds up the memory of the claims of a GPU";
        return Err(Mistake::new(keys::MEMORY_OVERCOMMIT, "true", why));
    }
    if request.suspended {
        let why = "not in a namespace whose pods get claims: a claim cannot change, so the pod could not be resumed";
        return Err(Mistake::new(keys::SUSPEND, "true", why));
    }
    let mut exactly = json!({"deviceClassName": device_class(demand)?, "count": demand.gpus});
    let selectors = selectors(request);
    if !selectors.is_empty() {
        exactly["selectors"] = json!(selectors);
    }
    if !demand.is_whole() {
        let Some(memory) = demand.memory_bytes else {
            let why = "a claim states its memory: it cannot ask for the same part of it as of the time";
            return Err(Mistake::missing(keys::MEMORY, why));
        };
        let milli = demand.share.ppm() / PPM_PER_MILLI;
        exactly["capacity"] = json!({"requests": {MILLI: milli.to_string(), MEMORY: memory.to_string()}});
    }
    let asked = if demand.latency_critical && !demand.is_whole() {
        // A GPU without another latency-critical claim if there is one, as the extender chooses.
        let mut alone = exactly.clone();
        alone["name"] = json!("alone");
        alone["capacity"]["requests"][CRITICAL] = json!("1");
        exactly["name"] = json!("beside");
        json!({"name": "gpu", "firstAvailable": [alone, exactly]})
    } else {
        json!({"name": "gpu", "exactly": exactly})
    };
    let mut devices = json!({"requests": [asked]});
    if demand.gpus > 1 {
        // Several shares could be of one GPU otherwise.
        devices["constraints"] = json!([{"distinctAttribute": format!("{DRIVER}/uuid")}]);
    }
    if let Some(parameters) = share_config::parameters(annotations) {
        devices["config"] = json!([{"opaque": {"driver": DRIVER, "parameters": parameters}}]);
    }
    // The fields are constants of this function.
    serde_json::from_value(json!({"devices": devices}))
        .map_err(|error| Mistake::missing("the claim", error.to_string()))
}

/// The class of the devices to choose from. As for the extender, only a pod with one GPU whose annotations name instances of GPUs in MIG
/// mode gets an instance. A request of a claim has one class, so names of both kinds cannot be translated.
fn device_class(demand: &Demand) -> Result<&'static str, Mistake> {
    let models = demand.models.iter().map(|model| {
        let is_instance = INSTANCE_MODELS.iter().any(|part| model.contains(part));
        (keys::GPU_MODEL, model, is_instance)
    });
    let uuids = demand.uuids.iter().map(|uuid| (keys::GPU_UUID, uuid, uuid.starts_with(INSTANCE_UUIDS)));
    let (instances, gpus): (Vec<_>, Vec<_>) =
        models.chain(uuids).partition(|(_, _, is_instance)| *is_instance);
    let Some((key, instance, _)) = instances.first() else {
        return Ok(DRIVER);
    };
    if let Some((_, gpu, _)) = gpus.first() {
        let names = format!("{instance}, {gpu}");
        return Err(Mistake::new(
            *key,
            names,
            "either names of GPUs or of MIG instances, because a claim is for one kind",
        ));
    }
    if demand.gpus > 1 {
        return Err(Mistake::new(
            *key,
            instance.as_str(),
            "names of GPUs, because a pod uses one MIG instance at most",
        ));
    }
    Ok(MIG_CLASS)
}

/// CEL expressions for the models and the UUIDs to choose from.
fn selectors(request: &GpuRequest) -> Vec<Value> {
    let attribute = |name: &str| format!("device.attributes['{DRIVER}'].{name}");
    let mut expressions = Vec::new();
    let models = &request.demand.models;
    if !models.is_empty() {
        // As the driver or as the node's label spells it. A JSON text of printable characters is one of CEL.
        let model = attribute("model");
        let list = json!(models);
        expressions.push(format!("{model} in {list} || {model}.replace(' ', '-') in {list}"));
    }
    if !request.demand.uuids.is_empty() {
        expressions.push(format!("{} in {}", attribute("uuid"), json!(request.demand.uuids)));
    }
    expressions.into_iter().map(|expression| json!({"cel": {"expression": expression}})).collect()
}

/// The template that a translated pod waits for; `None` if it waits for none. The pod owns it, so that it goes with the pod. Other pods that
/// still wait for it then get another one.
///
/// # Errors
/// The record is not one of the webhook's.
pub(super) fn template_for(pod: &Pod) -> Result<Option<ResourceClaimTemplate>, String> {
    let (metadata, spec) = (&pod.metadata, pod.spec.as_ref());
    let entry = spec.and_then(|spec| spec.resource_claims.iter().flatten().find(|entry| entry.name == CLAIM));
    let wanted = entry.and_then(|entry| entry.resource_claim_template_name.as_ref());
    let status = pod.status.as_ref().and_then(|status| status.resource_claim_statuses.as_ref());
    let is_served = status.into_iter().flatten().any(|status| status.name == CLAIM);
    let (Some(wanted), false, None) = (wanted, is_served, &metadata.deletion_timestamp) else {
        return Ok(None);
    };
    let record = metadata.annotations.as_ref().and_then(|annotations| annotations.get(RECORD));
    let record = record.ok_or_else(|| format!("it has no annotation {RECORD}"))?;
    let name = template_name(record);
    if name != *wanted {
        return Err(format!("it names the template {wanted}, expected {name} for its annotation {RECORD}"));
    }
    let annotations: BTreeMap<String, String> =
        serde_json::from_str(record).map_err(|error| format!("{RECORD} cannot be read: {error}"))?;
    let request = GpuRequest::admit(&annotations).map_err(|mistakes| mistakes.to_string())?;
    let request = request.ok_or_else(|| format!("{RECORD} asks for no GPU"))?;
    let spec = claim_spec(&request, &annotations).map_err(|mistake| mistake.to_string())?;
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        name: metadata.name.clone().unwrap_or_default(),
        uid: metadata.uid.clone().unwrap_or_default(),
        ..OwnerReference::default()
    };
    Ok(Some(ResourceClaimTemplate {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: metadata.namespace.clone(),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: ResourceClaimTemplateSpec { metadata: None, spec },
    }))
}
