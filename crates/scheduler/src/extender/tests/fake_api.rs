//! The part of an API server that the extender uses: lists and watches of nodes, pods and leases, bindings, events.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, patch, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::gate::Gate;

/// What goes wrong with a bind, a creation or a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// Nothing.
    None,
    /// The request is refused with this status.
    Refuse(u16),
    /// The bind is carried out, but the answer is an error.
    DoneButError,
    /// The bind is carried out, but no answer comes.
    DoneButSilent,
}

/// The server's state.
pub(super) struct Api {
    inner: Mutex<Inner>,
    version: watch::Sender<u64>,
    /// Lists and requests for single pods are not answered.
    pub(super) silent: AtomicBool,
    /// Decides what goes wrong with each bind.
    pub(super) fault: Mutex<Box<dyn FnMut() -> Fault + Send>>,
    /// Decides which deletions of pods are refused. Other faults have no effect.
    pub(super) delete_fault: Mutex<Box<dyn FnMut() -> Fault + Send>>,
    /// Decides which creations of pods are refused. Other faults have no effect.
    pub(super) create_fault: Mutex<Box<dyn FnMut() -> Fault + Send>>,
    /// Holds changes of a pod's status before they are carried out.
    pub(super) patches: Gate,
    /// Holds the answers to requests for single pods: they show the pod as it was before.
    pub(super) answers: Gate,
}

#[derive(Default)]
struct Inner {
    version: u64,
    /// By path of the collection, then by `namespace/name`.
    objects: BTreeMap<&'static str, BTreeMap<String, Value>>,
    /// Version, collection, type and object of everything that happened.
    log: Vec<(u64, &'static str, &'static str, Value)>,
    lists: usize,
    gets: usize,
    binds: usize,
    /// Collections whose watches deliver nothing for now.
    held: BTreeSet<&'static str>,
    events: Vec<Value>,
    /// Pods as they were when a client deleted them.
    evicted: Vec<Value>,
    /// Requests to change the status of a pod.
    patches: usize,
}

pub(super) const PODS: &str = "pods";
pub(super) const NODES: &str = "nodes";
pub(super) const BUDGETS: &str = "poddisruptionbudgets";
pub(super) const LEASES: &str = "leases";

impl Api {
    pub(super) fn new() -> Arc<Self> {
        let inner = Mutex::new(Inner::default());
        Arc::new(Self {
            inner,
            version: watch::Sender::new(0),
            silent: AtomicBool::new(false),
            fault: Mutex::new(Box::new(|| Fault::None)),
            delete_fault: Mutex::new(Box::new(|| Fault::None)),
            create_fault: Mutex::new(Box::new(|| Fault::None)),
            patches: Gate::new(),
            answers: Gate::new(),
        })
    }

    /// Serves on a port of its own, and returns a client of it.
    pub(super) async fn serve(self: &Arc<Self>) -> kube::Client {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = Router::new()
            .route("/api/v1/pods", get(|state, query| list(PODS, state, query)))
            .route("/apis/policy/v1/poddisruptionbudgets", get(|state, query| list(BUDGETS, state, query)))
            .route("/api/v1/nodes", get(|state, query| list(NODES, state, query)))
            .route(
                "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases",
                get(|Path(_): Path<String>, state, query| list(LEASES, state, query)),
            )
            .route("/api/v1/namespaces/{namespace}/pods", get(list_namespaced).post(create_pod))
            .route("/api/v1/namespaces/{namespace}/pods/{name}", get(get_pod).delete(delete_pod))
            .route("/api/v1/namespaces/{namespace}/pods/{name}/status", patch(patch_status))
            .route("/api/v1/namespaces/{namespace}/pods/{name}/binding", post(bind))
            .route("/api/v1/namespaces/{namespace}/events", post(event))
            .with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        client(&format!("http://{address}"))
    }

    /// Creates or changes an object.
    pub(super) fn put(&self, collection: &'static str, object: Value) {
        let mut inner = self.inner.lock().unwrap();
        inner.put(collection, object);
        self.version.send_replace(inner.version);
    }

    /// Deletes an object, by `namespace/name`.
    pub(super) fn delete(&self, collection: &'static str, key: &str) {
        let mut inner = self.inner.lock().unwrap();
        let Some(mut object) = inner.objects.entry(collection).or_default().remove(key) else { return };
        inner.version += 1;
        let version = inner.version;
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        inner.log.push((version, collection, "DELETED", object));
        self.version.send_replace(version);
    }

    pub(super) fn get(&self, collection: &'static str, key: &str) -> Option<Value> {
        self.inner.lock().unwrap().objects.get(collection)?.get(key).cloned()
    }

    pub(super) fn all(&self, collection: &'static str) -> Vec<Value> {
        self.inner
            .lock()
            .unwrap()
            .objects
            .get(collection)
            .map(|all| all.values().cloned().collect())
            .unwrap_or_default()
    }

    pub(super) fn events(&self) -> Vec<Value> {
        self.inner.lock().unwrap().events.clone()
    }

    /// Pods as they were when a client deleted them.
    pub(super) fn evicted(&self) -> Vec<Value> {
        self.inner.lock().unwrap().evicted.clone()
    }

    /// Requests to change the status of a pod.
    pub(super) fn patches(&self) -> usize {
        self.inner.lock().unwrap().patches
    }

    pub(super) fn lists(&self) -> usize {
        self.inner.lock().unwrap().lists
    }

    /// Returns if the server answers, else never.
    async fn answer(&self) {
        if self.silent.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    }

    /// Requests for single pods.
    pub(super) fn gets(&self) -> usize {
        self.inner.lock().unwrap().gets
    }

    /// Watches of the collection deliver nothing from now on; lists and single requests show the changes.
    pub(super) fn hold_watches(&self, collection: &'static str) {
        self.inner.lock().unwrap().held.insert(collection);
    }

    /// Watches deliver what happened meanwhile.
    pub(super) fn release_watches(&self, collection: &'static str) {
        let mut inner = self.inner.lock().unwrap();
        inner.held.remove(collection);
        self.version.send_replace(inner.version);
    }

    pub(super) fn binds(&self) -> usize {
        self.inner.lock().unwrap().binds
    }
}

impl Inner {
    fn put(&mut self, collection: &'static str, mut object: Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let key = key(&object);
        let is_new = self.objects.entry(collection).or_default().insert(key, object.clone()).is_none();
        self.log.push((self.version, collection, if is_new { "ADDED" } else { "MODIFIED" }, object));
    }
}

pub(super) fn client(address: &str) -> kube::Client {
    let mut config = kube::Config::new(address.parse().unwrap());
    config.default_retry = false;
    kube::Client::try_from(config).unwrap()
}

fn key(object: &Value) -> String {
    let part = |name: &str| object["metadata"][name].as_str().unwrap_or_default().to_owned();
    match part("namespace").as_str() {
        "" => part("name"),
        namespace => format!("{namespace}/{}", part("name")),
    }
}

fn is_selected(object: &Value, query: &BTreeMap<String, String>) -> bool {
    let Some(selector) = query.get("fieldSelector") else { return true };
    selector.split(',').all(|term| {
        let (path, wanted) = term.split_once('=').unwrap();
        let value = |path: &str| path.split('.').fold(object, |value, step| &value[step]).as_str();
        match path.strip_suffix('!') {
            Some(path) => value(path).unwrap_or_default() != wanted,
            None => value(path) == Some(wanted),
        }
    })
}

async fn get_pod(State(api): State<Arc<Api>>, Path((namespace, name)): Path<(String, String)>) -> Response {
    api.answer().await;
    let pod = api.get(PODS, &format!("{namespace}/{name}"));
    api.inner.lock().unwrap().gets += 1;
    api.answers.passed().await;
    match pod {
        Some(pod) => Json(pod).into_response(),
        None => status(404, "pod not found"),
    }
}

/// The pods of a namespace that have the label of the selector.
async fn list_namespaced(
    State(api): State<Arc<Api>>,
    Path(namespace): Path<String>,
    Query(query): Query<BTreeMap<String, String>>,
) -> Response {
    let has_label = |pod: &Value| {
        query.get("labelSelector").is_none_or(|key| pod["metadata"]["labels"].get(key).is_some())
    };
    let pods = api.all(PODS).into_iter();
    let items: Vec<Value> =
        pods.filter(|pod| pod["metadata"]["namespace"] == *namespace && has_label(pod)).collect();
    Json(json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items})).into_response()
}

async fn create_pod(
    State(api): State<Arc<Api>>,
    Path(namespace): Path<String>,
    Json(mut pod): Json<Value>,
) -> Response {
    if let Fault::Refuse(code) = (api.create_fault.lock().unwrap())() {
        return status(code, "made up by the test");
    }
    let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    if api.get(PODS, &format!("{namespace}/{name}")).is_some() {
        return status(409, "pod exists");
    }
    pod["metadata"]["uid"] = json!(format!("{name}-uid"));
    pod["status"] = json!({"phase": "Pending"});
    api.put(PODS, pod.clone());
    (StatusCode::CREATED, Json(pod)).into_response()
}

/// As an API server does it for a pod without a grace period.
async fn delete_pod(
    State(api): State<Arc<Api>>,
    Path((namespace, name)): Path<(String, String)>,
    parameters: Bytes,
) -> Response {
    if let Fault::Refuse(code) = (api.delete_fault.lock().unwrap())() {
        return status(code, "made up by the test");
    }
    let key = format!("{namespace}/{name}");
    let parameters: Value = serde_json::from_slice(&parameters).unwrap();
    match api.get(PODS, &key) {
        None => status(404, "pod not found"),
        Some(pod) if pod["metadata"]["uid"] != parameters["preconditions"]["uid"] => {
            status(409, "precondition failed: UID")
        }
        Some(pod) => {
            api.inner.lock().unwrap().evicted.push(pod.clone());
            api.delete(PODS, &key);
            Json(pod).into_response()
        }
    }
}

/// A strategic merge patch of the status, or a JSON patch of tests and removals.
async fn patch_status(
    State(api): State<Arc<Api>>,
    Path((namespace, name)): Path<(String, String)>,
    changes: Bytes,
) -> Response {
    api.inner.lock().unwrap().patches += 1;
    api.patches.passed().await;
    let Some(mut pod) = api.get(PODS, &format!("{namespace}/{name}")) else {
        return status(404, "pod not found");
    };
    let changes: Value = serde_json::from_slice(&changes).unwrap();
    if let Some(new) = changes["status"].as_object() {
        if pod["metadata"]["uid"] != changes["metadata"]["uid"] {
            return status(409, "precondition failed: UID");
        }
        for (field, value) in new {
            pod["status"][field] = value.clone();
        }
    }
    for operation in changes.as_array().into_iter().flatten() {
        let path = operation["path"].as_str().unwrap();
        match operation["op"].as_str() {
            Some("test") if pod.pointer(path) == Some(&operation["value"]) => {}
            Some("test") => return status(422, "a test of the patch failed"),
            Some("remove") => {
                let (parent, field) = path.rsplit_once('/').unwrap();
                pod.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(field);
            }
            _ => return status(400, "the fake knows no such operation"),
        }
    }
    api.put(PODS, pod.clone());
    Json(pod).into_response()
}

async fn list(
    collection: &'static str,
    State(api): State<Arc<Api>>,
    Query(query): Query<BTreeMap<String, String>>,
) -> Response {
    if query.get("watch").is_some_and(|watch| watch == "true" || watch == "1") {
        return follow(collection, api, query);
    }
    api.answer().await;
    let mut inner = api.inner.lock().unwrap();
    inner.lists += 1;
    let objects = inner.objects.get(collection).into_iter().flat_map(BTreeMap::values);
    let items: Vec<Value> = objects.filter(|object| is_selected(object, &query)).cloned().collect();
    let version = inner.version.to_string();
    Json(
        json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": version}, "items": items}),
    )
    .into_response()
}

fn follow(collection: &'static str, api: Arc<Api>, query: BTreeMap<String, String>) -> Response {
    let from: u64 = query.get("resourceVersion").and_then(|text| text.parse().ok()).unwrap_or(0);
    let changes = api.version.subscribe();
    let lines = futures::stream::unfold(
        (api, query, from, changes),
        move |(api, query, from, mut changes)| async move {
            loop {
                let (lines, version) = {
                    let inner = api.inner.lock().unwrap();
                    let is_held = inner.held.contains(collection);
                    let new = inner
                        .log
                        .iter()
                        .filter(|(version, of, ..)| *version > from && *of == collection && !is_held);
                    let new = new.filter(|(_, _, _, object)| is_selected(object, &query));
                    let lines = new
                        .map(|(_, _, kind, object)| format!("{}\n", json!({"type": kind, "object": object})));
                    (lines.collect::<String>(), inner.version)
                };
                if !lines.is_empty() {
                    return Some((Ok::<_, Infallible>(Bytes::from(lines)), (api, query, version, changes)));
                }
                changes.changed().await.ok()?;
            }
        },
    );
    Body::from_stream(lines).into_response()
}

fn status(code: u16, message: &str) -> Response {
    let reason = if code == 404 { "NotFound" } else { "" };
    let body = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
        "message": message});
    (StatusCode::from_u16(code).unwrap(), Json(body)).into_response()
}

/// As `setPodNodeAndMetadata` does it: by UID, only once, node and annotations together.
async fn bind(
    State(api): State<Arc<Api>>,
    Path((namespace, name)): Path<(String, String)>,
    Json(binding): Json<Value>,
) -> Response {
    let fault = (api.fault.lock().unwrap())();
    if let Fault::Refuse(code) = fault {
        return status(code, "made up by the test");
    }
    let done = {
        let mut inner = api.inner.lock().unwrap();
        inner.binds += 1;
        let pod = inner.objects.get(PODS).and_then(|pods| pods.get(&format!("{namespace}/{name}"))).cloned();
        match pod {
            None => Err((404, "pod not found")),
            Some(pod) if pod["metadata"]["uid"] != binding["metadata"]["uid"] => {
                Err((409, "precondition failed: UID"))
            }
            Some(pod) if pod["spec"]["nodeName"].is_string() => Err((409, "already assigned to a node")),
            Some(mut pod) => {
                pod["spec"]["nodeName"] = binding["target"]["name"].clone();
                for (key, value) in binding["metadata"]["annotations"].as_object().unwrap() {
                    pod["metadata"]["annotations"][key] = value.clone();
                }
                inner.put(PODS, pod);
                api.version.send_replace(inner.version);
                Ok(())
            }
        }
    };
    match (done, fault) {
        (Err((code, message)), _) => status(code, message),
        (Ok(()), Fault::DoneButError) => status(500, "made up by the test, after the fact"),
        (Ok(()), Fault::DoneButSilent) => {
            tokio::time::sleep(Duration::from_secs(3600)).await;
            StatusCode::OK.into_response()
        }
        (Ok(()), _) => {
            let body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
            (StatusCode::CREATED, Json(body)).into_response()
        }
    }
}

async fn event(State(api): State<Arc<Api>>, Path(_): Path<String>, Json(event): Json<Value>) -> Response {
    api.inner.lock().unwrap().events.push(event.clone());
    (StatusCode::CREATED, Json(event)).into_response()
}
