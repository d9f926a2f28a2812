//! The command line of `sluice webhook`.

use std::net::SocketAddr;
use std::path::PathBuf;

use sluice_placement::sandboxes;

use super::certificates::rotation::Policy;
use super::plan::Settings;

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;

/// `sluice webhook`: serve the admission webhook.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// Where the API server reaches the webhook, over TLS. `[::]` stands for all addresses, IPv4 ones included.
    #[arg(long, default_value = "[::]:9443")]
    pub(super) listen: SocketAddr,

    /// Where probes and metrics are served, without TLS.
    #[arg(long, default_value = "[::]:9404")]
    pub(super) metrics: SocketAddr,

    /// Folder with tls.crt and tls.key that another program renews (cert-manager). Without it the webhook creates and
    /// renews its certificate itself, keeps it in a Secret, and writes the CA bundle into its webhook configurations.
    #[arg(long)]
    pub(super) cert_dir: Option<PathBuf>,

    /// Namespace of the Service and the Secret. Default: the environment variable POD_NAMESPACE, or else `sluice`.
    #[arg(long)]
    pub(super) namespace: Option<String>,

    /// The Service by which the API server reaches the webhook; the certificate is for its name.
    #[arg(long, default_value = "sluice-webhook")]
    pub(super) service: String,

    /// Further host names or addresses for the certificate, where the API server uses others.
    #[arg(long = "dns-name")]
    pub(super) dns_names: Vec<String>,

    /// The Secret that the replicas share.
    #[arg(long, default_value = "sluice-webhook-certificate")]
    pub(super) secret: String,

    /// The MutatingWebhookConfiguration that gets the CA bundle.
    #[arg(long, default_value = "sluice")]
    pub(super) mutating_configuration: String,

    /// The ValidatingWebhookConfiguration that gets the CA bundle.
    #[arg(long, default_value = "sluice")]
    pub(super) validating_configuration: String,

    /// Days for which the serving certificate is valid; it is renewed when a third is left.
    #[arg(long, default_value_t = 90, value_parser = clap::value_parser!(i64).range(1..=825))]
    pub(super) certificate_days: i64,

    /// Interval at which the certificate and the CA bundles are checked.
    #[arg(long, default_value_t = 10)]
    pub(super) certificate_check_seconds: u64,

    /// RuntimeClass for GPU pods that name none, where the NVIDIA runtime is not the nodes' default.
    #[arg(long)]
    pub(super) runtime_class: Option<String>,

    /// RuntimeClasses whose containers run in a sandbox with a kernel of its own, comma-separated; a `*` at the end stands for
    /// any rest. GPU pods that name one are refused.
    #[arg(long, value_name = "NAMES", default_value = sandboxes::DEFAULT)]
    pub(super) sandbox_runtime_classes: String,

    /// Namespaces whose annotated pods get a claim (DRA) in place of GPUs of the extender, comma-separated.
    #[arg(long, value_name = "NAMESPACES", default_value = "")]
    pub(super) claims_in: String,

    /// How long requests are still answered after SIGTERM, until every API server has noticed it.
    #[arg(long, default_value_t = 5)]
    pub(super) shutdown_delay_seconds: u64,
}

impl Arguments {
    pub(super) fn settings(&self) -> Settings {
        Settings {
            runtime_class: self.runtime_class.clone().filter(|class| !class.is_empty()),
            claims_in: self.claims_in.as_str().into(),
            sandboxes: self.sandbox_runtime_classes.as_str().into(),
        }
    }

    /// Namespace of the Service and the Secret.
    pub(super) fn namespace(&self) -> String {
        let given = self.namespace.clone().or_else(|| std::env::var("POD_NAMESPACE").ok());
        given.unwrap_or_else(|| "sluice".to_owned())
    }

    /// An authority is valid ten times as long as the certificates that it signs, and is published an hour before it
    /// signs.
    pub(super) fn policy(&self) -> Policy {
        let (service, namespace) = (&self.service, self.namespace());
        let mut names = vec![
            format!("{service}.{namespace}.svc"),
            format!("{service}.{namespace}"),
            format!("{service}.{namespace}.svc.cluster.local"),
        ];
        names.extend(self.dns_names.iter().cloned());
        let serving_life = self.certificate_days * DAY;
        Policy { names, authority_life: serving_life * 10, serving_life, overlap: HOUR }
    }
}

#[cfg(test)]
mod tests;
