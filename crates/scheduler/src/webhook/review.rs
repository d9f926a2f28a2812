//! AdmissionReview v1, reduced to the needed fields: the API server's request and the answer.

use k8s_openapi::ByteString;
use serde::Deserialize;
use serde_json::{Value, json};
use sluice_placement::annotations::{Mistake, Mistakes};

use super::patch::Operation as PatchOperation;

const API_VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";

/// What the API server sends.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Review {
    api_version: String,
    kind: String,
    request: Option<Request>,
}

/// The request inside.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Request {
    /// Returned in the answer.
    pub(super) uid: String,
    pub(super) operation: Operation,
    pub(super) resource: Resource,
    pub(super) sub_resource: Option<String>,
    pub(super) namespace: Option<String>,
    pub(super) name: Option<String>,
    #[serde(default)]
    pub(super) object: Value,
    #[serde(default)]
    pub(super) old_object: Value,
}

/// The resource that the request is about.
#[derive(Debug, Deserialize)]
pub(super) struct Resource {
    pub(super) group: String,
    pub(super) resource: String,
}

/// The operation.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum Operation {
    /// A new object.
    Create,
    /// A change to an object.
    Update,
    /// Not requested by the webhook configurations.
    Delete,
    /// Not requested by the webhook configurations.
    Connect,
}

impl Request {
    pub(super) fn parse(body: &[u8]) -> Result<Self, String> {
        let review: Review =
            serde_json::from_slice(body).map_err(|error| format!("the body is no {KIND}: {error}"))?;
        if review.api_version != API_VERSION || review.kind != KIND {
            return Err(format!("{}/{} is not {API_VERSION}/{KIND}", review.api_version, review.kind));
        }
        let mut request = review.request.ok_or_else(|| format!("the {KIND} has no request"))?;
        request.sub_resource = request.sub_resource.filter(|name| !name.is_empty());
        Ok(request)
    }

    /// Namespace and name, for logs.
    pub(super) fn pod(&self) -> String {
        let named = self.name.as_deref().filter(|name| !name.is_empty());
        let generated = || self.object.pointer("/metadata/generateName").and_then(Value::as_str);
        let name = named.or_else(generated).unwrap_or("?");
        format!("{}/{name}", self.namespace.as_deref().unwrap_or("?"))
    }
}

/// Decision on a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Decision {
    /// The pod does not use Sluice.
    #[default]
    NotOurs,
    /// Admitted, with the patch (empty in validation) and warnings for the user.
    Admitted { patch: Vec<PatchOperation>, warnings: Vec<String> },
    /// Refused, with every reason.
    Refused(String),
}

impl Decision {
    /// Admitted as it is, or refused with all mistakes.
    pub(super) fn admitted_unless(mistakes: Vec<Mistake>) -> Result<Self, String> {
        Mistakes::check(mistakes).map_err(|mistakes| mistakes.to_string())?;
        Ok(Self::Admitted { patch: Vec::new(), warnings: Vec::new() })
    }

    /// The answer to the request of this uid.
    pub(super) fn answer(&self, uid: &str) -> serde_json::Result<Value> {
        let mut response = json!({"uid": uid, "allowed": !matches!(self, Self::Refused(_))});
        match self {
            Self::NotOurs => {}
            Self::Admitted { patch, warnings } => {
                if !patch.is_empty() {
                    response["patchType"] = json!("JSONPatch");
                    response["patch"] = json!(ByteString(serde_json::to_vec(patch)?));
                }
                if !warnings.is_empty() {
                    response["warnings"] = json!(warnings);
                }
            }
            Self::Refused(message) => {
                response["status"] = json!({"code": 422, "reason": "Invalid", "message": message});
            }
        }
        Ok(json!({"apiVersion": API_VERSION, "kind": KIND, "response": response}))
    }
}
