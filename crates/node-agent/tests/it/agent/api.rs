//! An API server with one node, its pods, claims and ResourceSlices: list, watch, merge patches, server-side apply, events. It can become
//! unavailable.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Query, State};
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::UnboundedReceiverStream;

pub const NODE: &str = "node-1";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Pods,
    Nodes,
    Claims,
    Slices,
}

impl Kind {
    fn of(path: &str) -> Self {
        let kinds =
            [("/pods", Self::Pods), ("/resourceclaims", Self::Claims), ("/resourceslices", Self::Slices)];
        kinds.into_iter().find(|(part, _)| path.contains(part)).map_or(Self::Nodes, |(_, kind)| kind)
    }

    /// The field selector of the agent's lists.
    fn selector(self) -> &'static str {
        match self {
            Self::Pods => "spec.nodeName=node-1",
            Self::Nodes => "metadata.name=node-1",
            Self::Slices => "spec.nodeName=node-1,spec.driver=gpu.sluice.dev",
            Self::Claims => "the agent lists no claims",
        }
    }
}

struct Change {
    version: u64,
    kind: Kind,
    line: Bytes,
}

#[derive(Default)]
struct Inner {
    version: u64,
    objects: BTreeMap<String, (Kind, Value)>,
    log: Vec<Change>,
    /// Watches from before this version get the answer that it is gone.
    compacted: u64,
    away: bool,
    /// So many requests for evictions are refused.
    refused_evictions: u32,
    /// So many writes of conditions of pods are refused.
    refused_conditions: u32,
    /// As before Kubernetes 1.36: fields of consumable capacity are dropped.
    is_old: bool,
    /// Requests for deletions fail.
    refuses_deletions: bool,
    watchers: Vec<(Kind, mpsc::UnboundedSender<Bytes>)>,
}

/// What the server received from the agent.
#[derive(Clone, Default, Debug)]
pub struct Seen {
    pub events: Vec<Value>,
    /// Requests for evictions: path and body.
    pub evictions: Vec<(String, Value)>,
    /// The ResourceSlices as they are stored, `null` for each deletion.
    pub slices: Vec<Value>,
    /// Requests refused while the server was unavailable.
    pub turned_away: usize,
    /// The conditions that were written to pods: name of the pod, and condition.
    pub conditions: Vec<(String, Value)>,
}

#[derive(Clone)]
pub struct Api {
    inner: Arc<Mutex<Inner>>,
    seen: Arc<watch::Sender<Seen>>,
    node: Arc<watch::Sender<Value>>,
    pub client: kube::Client,
}

impl Api {
    pub async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let mut config = kube::Config::new(url.parse().unwrap());
        // As the agent's own client.
        config.default_retry = false;
        let client = kube::Client::try_from(config).unwrap();
        let api = Self {
            inner: Arc::default(),
            seen: Arc::new(watch::Sender::default()),
            node: Arc::new(watch::Sender::new(Value::Null)),
            client,
        };
        api.put(
            Kind::Nodes,
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "uid": "n"}}),
        );
        let router = Router::new().fallback(answer).with_state(api.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        api
    }

    /// Creates or replaces an object.
    pub fn put(&self, kind: Kind, object: Value) {
        self.store(&mut self.lock(), kind, object);
    }

    /// Merges a patch into the node, and returns the result; `None` if the patch is one of another version of the node.
    fn patch_node(&self, patch: &Value) -> Option<Value> {
        // Held from the reading to the writing, so that no change in between is lost.
        let mut inner = self.lock();
        let mut node = self.node.borrow().clone();
        let version = &patch["metadata"]["resourceVersion"];
        if !version.is_null() && *version != node["metadata"]["resourceVersion"] {
            return None;
        }
        merge(&mut node, patch);
        self.store(&mut inner, Kind::Nodes, node);
        Some(self.node.borrow().clone())
    }

    fn store(&self, inner: &mut Inner, kind: Kind, mut object: Value) {
        inner.version += 1;
        object["metadata"]["resourceVersion"] = json!(inner.version.to_string());
        let name = name(&object);
        let verb = if inner.objects.contains_key(&name) { "MODIFIED" } else { "ADDED" };
        inner.objects.insert(name, (kind, object.clone()));
        if kind == Kind::Nodes {
            self.node.send_replace(object.clone());
        }
        inner.notify(kind, verb, object);
    }

    /// Gives the node a label, or takes it away.
    pub fn label(&self, key: &str, value: Option<&str>) {
        self.patch_node(&json!({"metadata": {"labels": {key: value}}}));
    }

    /// Gives a pod an annotation, or takes it away.
    pub fn annotate(&self, pod: &str, key: &str, value: Option<&str>) {
        let mut inner = self.lock();
        let (_, mut object) = inner.objects[pod].clone();
        merge(&mut object, &json!({"metadata": {"annotations": {key: value}}}));
        self.store(&mut inner, Kind::Pods, object);
    }

    /// A strategic merge of one condition, which replaces that of the same type. Returns the pod; `None` if it has another uid.
    fn patch_condition(&self, name: &str, patch: &Value) -> Option<Value> {
        let mut inner = self.lock();
        let (_, mut object) = inner.objects.get(name)?.clone();
        if patch["metadata"]["uid"] != object["metadata"]["uid"] {
            return None;
        }
        let [condition] = patch["status"]["conditions"].as_array()?.as_slice() else { return None };
        let mut conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.retain(|other| other["type"] != condition["type"]);
        conditions.push(condition.clone());
        object["status"]["conditions"] = conditions.into();
        self.store(&mut inner, Kind::Pods, object.clone());
        self.seen.send_modify(|seen| seen.conditions.push((name.to_owned(), condition.clone())));
        Some(object)
    }

    /// Refuses the next writes of conditions of pods.
    pub fn refuse_conditions(&self, count: u32) {
        self.lock().refused_conditions = count;
    }

    /// Refuses deletions until the returned function is called.
    pub fn refuse_deletions(&self) -> impl FnOnce() + use<> {
        self.lock().refuses_deletions = true;
        let api = self.clone();
        move || api.lock().refuses_deletions = false
    }

    /// Drops the fields of consumable capacity from now on.
    pub fn become_old(&self) {
        self.lock().is_old = true;
    }

    fn apply_slice(&self, mut slice: Value) -> Value {
        let mut inner = self.lock();
        for device in slice["spec"]["devices"].as_array_mut().unwrap() {
            if inner.is_old {
                device.as_object_mut().unwrap().remove("allowMultipleAllocations");
            }
        }
        self.store(&mut inner, Kind::Slices, slice.clone());
        self.seen.send_modify(|seen| seen.slices.push(slice.clone()));
        slice
    }

    pub fn delete(&self, name: &str) {
        let mut inner = self.lock();
        inner.version += 1;
        let (kind, mut object) = inner.objects.remove(name).unwrap();
        if kind == Kind::Slices {
            self.seen.send_modify(|seen| seen.slices.push(Value::Null));
        }
        object["metadata"]["resourceVersion"] = json!(inner.version.to_string());
        inner.notify(kind, "DELETED", object);
    }

    /// Ends all watches and refuses all requests.
    pub fn go_away(&self) {
        let mut inner = self.lock();
        inner.away = true;
        inner.watchers.clear();
    }

    /// Answers again, without the changes since: watchers have to list.
    pub fn come_back(&self) {
        let mut inner = self.lock();
        inner.away = false;
        inner.compacted = inner.version;
    }

    /// Refuses the next requests for evictions.
    pub fn refuse_evictions(&self, count: u32) {
        self.lock().refused_evictions = count;
    }

    pub fn seen(&self) -> watch::Receiver<Seen> {
        self.seen.subscribe()
    }

    /// The node as it changes.
    pub fn node(&self) -> watch::Receiver<Value> {
        self.node.subscribe()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap().to_owned()
}

impl Inner {
    fn notify(&mut self, kind: Kind, verb: &str, object: Value) {
        let line = Bytes::from(format!("{}\n", json!({"type": verb, "object": object})));
        self.watchers.retain(|(of, watcher)| *of != kind || watcher.send(line.clone()).is_ok());
        self.log.push(Change { version: self.version, kind, line });
    }

    fn list(&self, kind: Kind) -> Value {
        let items = self.objects.values().filter(|(of, _)| *of == kind).map(|(_, object)| object);
        json!({
            "apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": self.version.to_string()},
            "items": items.collect::<Vec<_>>(),
        })
    }

    fn watch(&mut self, kind: Kind, from: u64) -> Body {
        let (sender, receiver) = mpsc::unbounded_channel();
        if from < self.compacted {
            let gone = json!({"type": "ERROR", "object": {
                "kind": "Status", "status": "Failure", "code": 410, "reason": "Expired", "message": "too old", "metadata": {},
            }});
            let _ = sender.send(Bytes::from(format!("{gone}\n")));
        } else {
            for change in self.log.iter().filter(|change| change.kind == kind && change.version > from) {
                let _ = sender.send(change.line.clone());
            }
            self.watchers.push((kind, sender));
        }
        Body::from_stream(UnboundedReceiverStream::new(receiver).map(Ok::<_, Infallible>))
    }
}

async fn answer(
    State(api): State<Api>,
    method: Method,
    uri: Uri,
    Query(query): Query<BTreeMap<String, String>>,
    body: Bytes,
) -> Response {
    let path = uri.path();
    if api.lock().away {
        api.seen.send_modify(|seen| seen.turned_away += 1);
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    let kind = Kind::of(path);
    match method {
        Method::GET if kind == Kind::Claims => {
            let name = path.rsplit('/').next().unwrap();
            match api.lock().objects.get(name) {
                Some((Kind::Claims, claim)) => axum::Json(claim.clone()).into_response(),
                _ => not_found(&format!("resourceclaims {name:?}")),
            }
        }
        Method::PATCH if kind == Kind::Slices => {
            axum::Json(api.apply_slice(serde_json::from_slice(&body).unwrap())).into_response()
        }
        Method::DELETE if kind == Kind::Slices => {
            let name = path.rsplit('/').next().unwrap();
            if api.lock().refuses_deletions {
                return StatusCode::INTERNAL_SERVER_ERROR.into_response();
            }
            if !api.lock().objects.contains_key(name) {
                return not_found(&format!("resourceslices {name:?}"));
            }
            api.delete(name);
            let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"});
            axum::Json(status).into_response()
        }
        Method::GET => {
            assert_eq!(query.get("fieldSelector").map(String::as_str), Some(kind.selector()), "{uri}");
            if query.contains_key("watch") {
                let from = query.get("resourceVersion").and_then(|version| version.parse().ok()).unwrap_or(0);
                return api.lock().watch(kind, from).into_response();
            }
            axum::Json(api.lock().list(kind)).into_response()
        }
        Method::PATCH if kind == Kind::Nodes && path.trim_end_matches("/status").ends_with(NODE) => {
            let mut patch: Value = serde_json::from_slice(&body).unwrap();
            // The API server ignores the status outside of its sub-resource, and most of the rest within.
            let ignored = if path.ends_with("/status") { "metadata" } else { "status" };
            patch.as_object_mut().unwrap().remove(ignored);
            api.patch_node(&patch)
                .map_or(StatusCode::CONFLICT.into_response(), |node| axum::Json(node).into_response())
        }
        Method::PATCH if kind == Kind::Pods && path.ends_with("/status") => {
            let mut inner = api.lock();
            if inner.refused_conditions > 0 {
                inner.refused_conditions -= 1;
                return StatusCode::INTERNAL_SERVER_ERROR.into_response();
            }
            drop(inner);
            let name = path.trim_end_matches("/status").rsplit('/').next().unwrap();
            api.patch_condition(name, &serde_json::from_slice(&body).unwrap())
                .map_or(StatusCode::CONFLICT.into_response(), |pod| axum::Json(pod).into_response())
        }
        Method::POST | Method::PATCH if path.contains("/events") => {
            let event: Value = serde_json::from_slice(&body).unwrap();
            api.seen.send_modify(|seen| seen.events.push(event.clone()));
            axum::Json(event).into_response()
        }
        Method::POST if path.ends_with("/eviction") => {
            let body = serde_json::from_slice(&body).unwrap();
            api.seen.send_modify(|seen| seen.evictions.push((path.to_owned(), body)));
            let mut inner = api.lock();
            let status = |code, message| {
                axum::Json(
                    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "code": code, "message": message}),
                )
            };
            if inner.refused_evictions > 0 {
                inner.refused_evictions -= 1;
                let why = "it would violate the pod's disruption budget";
                return (StatusCode::TOO_MANY_REQUESTS, status(429, why)).into_response();
            }
            (StatusCode::CREATED, status(201, "")).into_response()
        }
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}

fn not_found(what: &str) -> Response {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 404,
        "reason": "NotFound", "message": format!("{what} not found"),
    });
    (StatusCode::NOT_FOUND, axum::Json(status)).into_response()
}

fn merge(target: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in patch {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(key);
        } else {
            merge(&mut target[key], value);
        }
    }
}
