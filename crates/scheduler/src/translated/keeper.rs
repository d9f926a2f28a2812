//! Creates the templates that translated pods wait for.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaimTemplate;
use kube::api::{Api, ListParams, PostParams};
use kube::{Client, Error};
use tokio::time::{MissedTickBehavior, interval};

use super::template::template_for;
use super::{ClaimNamespaces, LABEL};

/// Interval between two looks at the pods that wait. Kubernetes asks for a missing template again after a growing pause.
const INTERVAL: Duration = Duration::from_secs(1);
const CONFLICT: u16 = 409;

/// Creates missing templates for ever, while `is_leading`.
pub(crate) async fn keep_templates(
    client: Client,
    namespaces: ClaimNamespaces,
    is_leading: impl Fn() -> bool,
) {
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if is_leading()
            && let Err(error) = create_missing(&client, &namespaces).await
        {
            tracing::warn!(%error, "cannot look for pods that wait for a claim template");
        }
    }
}

async fn create_missing(client: &Client, namespaces: &ClaimNamespaces) -> kube::Result<()> {
    // From the API server's cache: a pod that it does not have yet is seen the next time.
    let waiting = ListParams::default().labels(LABEL).fields("spec.nodeName=").match_any();
    for pod in Api::<Pod>::all(client.clone()).list(&waiting).await?.items {
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        // The webhook translates pods there only, but anyone may write its annotation.
        if !namespaces.contains(&namespace) {
            continue;
        }
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let template = match template_for(&pod) {
            Ok(Some(template)) => template,
            Ok(None) => continue,
            Err(why) => {
                tracing::warn!(namespace, name, why, "no claim template can be made for the pod");
                continue;
            }
        };
        let templates = Api::<ResourceClaimTemplate>::namespaced(client.clone(), &namespace);
        match templates.create(&PostParams::default(), &template).await {
            Ok(_) => tracing::info!(namespace, name, "claim template created for the pod"),
            // Another pod with the same annotations has it.
            Err(Error::Api(answer)) if answer.code == CONFLICT => {}
            Err(error) => {
                tracing::warn!(%error, namespace, name, "no claim template was created for the pod")
            }
        }
    }
    Ok(())
}
