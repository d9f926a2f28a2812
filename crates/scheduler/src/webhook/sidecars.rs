//! Containers that other webhooks and controllers add to pods beside the user's own. None of them computes on a GPU.

/// Names of such containers, and the component that adds each. `-N` at the end stands for nothing or a number behind a hyphen.
const INJECTED: [(&str, &str); 17] = [
    // Stands first (GoogleCloudPlatform/gcs-fuse-csi-driver, `SidecarContainerName`).
    ("gke-gcsfuse-sidecar", "GKE's Cloud Storage FUSE driver"),
    // Stands first; each further data set has a number at the end (fluid-cloudnative/fluid, `FuseContainerName`).
    ("fluid-fuse-N", "Fluid"),
    // Stands first since Linkerd 2.11 (linkerd/linkerd2, `ProxyContainerName`).
    ("linkerd-proxy", "Linkerd"),
    // On request, beside the proxy (linkerd/linkerd2, `config.linkerd.io/enable-debug-sidecar`).
    ("linkerd-debug", "Linkerd"),
    // Stands first with `holdApplicationUntilProxyStarts` (istio/istio, injection template).
    ("istio-proxy", "Istio"),
    // Also of Kong Mesh (kumahq/kuma, `KumaSidecarContainerName`).
    ("kuma-sidecar", "Kuma"),
    // From consul-k8s 1.0 on.
    ("consul-dataplane", "Consul"),
    // Before consul-k8s 1.0.
    ("envoy-sidecar", "Consul"),
    // hashicorp/vault-k8s.
    ("vault-agent", "the Vault agent injector"),
    // On Fargate and on request (DataDog/datadog-agent, `agentSidecarContainerName`).
    ("datadog-agent-injected", "Datadog's admission controller"),
    // A collector in `sidecar` mode (open-telemetry/opentelemetry-operator).
    ("otc-container", "the OpenTelemetry operator"),
    // dapr/dapr, the sidecar injector.
    ("daprd", "Dapr"),
    // Azure/azure-workload-identity, `ProxySidecarContainerName`.
    ("azwi-proxy", "Azure Workload Identity"),
    // telepresenceio/telepresence, the agent injector.
    ("traffic-agent", "Telepresence"),
    // Also in pods of KServe (knative/serving, `QueueContainerName`).
    ("queue-proxy", "Knative Serving"),
    // In the head pod (ray-project/kuberay, `AutoscalerContainerName`).
    ("autoscaler", "KubeRay"),
    // Beside notebooks (opendatahub-io/kubeflow, the notebook controller).
    ("oauth-proxy", "OpenShift AI"),
];

/// The component that adds containers of this name.
pub(super) fn injector(container: &str) -> Option<&'static str> {
    let is_number = |rest: &str| {
        let digits = rest.strip_prefix('-');
        digits.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let is_it = |name: &str| match name.strip_suffix("-N") {
        Some(start) => container.strip_prefix(start).is_some_and(|rest| rest.is_empty() || is_number(rest)),
        None => container == name,
    };
    INJECTED.iter().find(|(name, _)| is_it(name)).map(|(_, injector)| *injector)
}
