//! AdmissionReview v1, reduced to the needed fields: the API server's request and the answer.

use k8s_openapi::ByteString;
use serde::{Deserialize, Serialize};
use serde_json::Value;

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
    #[serde(default)]
    pub(super) sub_resource: Option<String>,
    #[serde(default)]
    pub(super) namespace: Option<String>,
    #[serde(default)]
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
    /// Parses the body of an HTTP request.
    ///
    /// # Errors
    /// Why it is no AdmissionReview of version 1 with a request in it.
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

/// The answer, as JSON.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Answer {
    api_version: &'static str,
    kind: &'static str,
    response: Response,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    uid: String,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<ByteString>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Status {
    code: u16,
    reason: &'static str,
    message: String,
}

impl Answer {
    /// The answer to the request of this uid.
    ///
    /// # Errors
    /// The patch cannot be written as JSON.
    pub(super) fn new(uid: String, decision: Decision) -> Result<Self, serde_json::Error> {
        let mut response = Response {
            uid,
            allowed: true,
            status: None,
            patch_type: None,
            patch: None,
            warnings: Vec::new(),
        };
        match decision {
            Decision::NotOurs => {}
            Decision::Admitted { patch, warnings } => {
                if !patch.is_empty() {
                    response.patch_type = Some("JSONPatch");
                    response.patch = Some(ByteString(serde_json::to_vec(&patch)?));
                }
                response.warnings = warnings;
            }
            Decision::Refused(message) => {
                response.allowed = false;
                response.status = Some(Status { code: 422, reason: "Invalid", message });
            }
        }
        Ok(Self { api_version: API_VERSION, kind: KIND, response })
    }
}
