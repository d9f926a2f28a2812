//! The real cluster: one Secret and two webhook configurations, each by name.

use std::collections::BTreeMap;

use anyhow::Context;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::renewer::{Cluster, Stored, Written};
use super::rotation::Material;

/// Key of the Secret under which the replicas share their material, as JSON.
const MATERIAL: &str = "material.json";

/// A client, and the names of the objects.
pub(in crate::webhook) struct Kubernetes {
    pub(in crate::webhook) client: kube::Client,
    pub(in crate::webhook) namespace: String,
    pub(in crate::webhook) secret: String,
    pub(in crate::webhook) mutating: String,
    pub(in crate::webhook) validating: String,
}

impl Kubernetes {
    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    async fn mutating(&self) -> anyhow::Result<Vec<(String, WebhookClientConfig)>> {
        let api: Api<MutatingWebhookConfiguration> = Api::all(self.client.clone());
        let found = api.get(&self.mutating).await.with_context(|| self.mutating.clone())?;
        let webhooks = found.webhooks.into_iter().flatten();
        Ok(webhooks.map(|webhook| (webhook.name, webhook.client_config)).collect())
    }

    async fn validating(&self) -> anyhow::Result<Vec<(String, WebhookClientConfig)>> {
        let api: Api<ValidatingWebhookConfiguration> = Api::all(self.client.clone());
        let found = api.get(&self.validating).await.with_context(|| self.validating.clone())?;
        let webhooks = found.webhooks.into_iter().flatten();
        Ok(webhooks.map(|webhook| (webhook.name, webhook.client_config)).collect())
    }
}

impl Cluster for Kubernetes {
    async fn read(&self) -> anyhow::Result<Stored> {
        let Some(secret) = self.secrets().get_opt(&self.secret).await? else {
            return Ok(Stored::default());
        };
        let data = secret.data.unwrap_or_default();
        let material = data.get(MATERIAL).and_then(|bytes| {
            let read = serde_json::from_slice(&bytes.0);
            read.inspect_err(|error| {
                tracing::warn!("Secret {}: {MATERIAL}: {error}; starting again", self.secret)
            })
            .ok()
        });
        Ok(Stored { material, version: secret.metadata.resource_version })
    }

    async fn write(&self, material: &Material, version: Option<&str>) -> anyhow::Result<Written> {
        let serving = material.serving();
        let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
        let data = BTreeMap::from([
            (MATERIAL.to_owned(), ByteString(serde_json::to_vec(material)?)),
            ("ca.crt".to_owned(), bytes(&material.bundle())),
            ("tls.crt".to_owned(), bytes(&serving.certificate)),
            ("tls.key".to_owned(), bytes(&serving.key)),
        ]);
        let written = match version {
            Some(version) => {
                let patch = json!({"metadata": {"resourceVersion": version}, "data": data});
                self.secrets().patch(&self.secret, &PatchParams::default(), &Patch::Merge(patch)).await
            }
            None => {
                let metadata = ObjectMeta { name: Some(self.secret.clone()), ..ObjectMeta::default() };
                let secret = Secret { metadata, data: Some(data), ..Secret::default() };
                self.secrets().create(&PostParams::default(), &secret).await
            }
        };
        match written {
            Ok(_) => Ok(Written::Stored),
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_already_exists() => {
                Ok(Written::Conflict)
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn read_bundles(&self) -> anyhow::Result<Vec<String>> {
        let webhooks = self.mutating().await?.into_iter().chain(self.validating().await?);
        let bundle = |config: WebhookClientConfig| config.ca_bundle.unwrap_or_default().0;
        Ok(webhooks.map(|(_, config)| String::from_utf8_lossy(&bundle(config)).into_owned()).collect())
    }

    async fn write_bundles(&self, bundle: &str) -> anyhow::Result<()> {
        let bundle = ByteString(bundle.as_bytes().to_vec());
        let api: Api<MutatingWebhookConfiguration> = Api::all(self.client.clone());
        if let Some(patch) = patches(&self.mutating().await?, &bundle)? {
            api.patch(&self.mutating, &PatchParams::default(), &patch).await?;
        }
        let api: Api<ValidatingWebhookConfiguration> = Api::all(self.client.clone());
        if let Some(patch) = patches(&self.validating().await?, &bundle)? {
            api.patch(&self.validating, &PatchParams::default(), &patch).await?;
        }
        Ok(())
    }
}

/// One patch for a configuration; `None` if it already has the bundle. It names each webhook that it changes, so that
/// it fails if the configuration changed in between.
fn patches(
    webhooks: &[(String, WebhookClientConfig)],
    bundle: &ByteString,
) -> anyhow::Result<Option<Patch<Value>>> {
    let mut operations = Vec::new();
    for (index, (name, config)) in webhooks.iter().enumerate() {
        if config.ca_bundle.as_ref() != Some(bundle) {
            operations.push(json!({"op": "test", "path": format!("/webhooks/{index}/name"), "value": name}));
            let path = format!("/webhooks/{index}/clientConfig/caBundle");
            operations.push(json!({"op": "add", "path": path, "value": bundle}));
        }
    }
    if operations.is_empty() {
        return Ok(None);
    }
    Ok(Some(Patch::Json(serde_json::from_value(Value::Array(operations))?)))
}
