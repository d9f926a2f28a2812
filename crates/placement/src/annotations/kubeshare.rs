//! Translates KubeShare's labels into Sluice's annotations, so that KubeShare manifests run unchanged.
//!
//! Numbers: every decimal from 0 to 1 and every whole number, including `10` and `.5`, which KubeShare's grammar refuses
//! by mistake. A share finer than thousandths is rounded down with a warning. Priorities above 0 (KubeShare's guarantee
//! pods) become `high`, the others (opportunistic) `best-effort`. `group_name` becomes the gang's name; a group without
//! `group_headcount` and `group_threshold` is none, as there.

use std::collections::BTreeMap;
use std::fmt;

use sluice_units::{Share, WHOLE_PPM};

use super::amount::{Decimal, THOUSANDTH_PPM, parse_quota};
use super::lists::{is_label, is_model, parse_list};
use super::mistake::{Mistake, Mistakes};
use super::read::MIN_MEMORY;
use super::read::parse_class;
use super::{Class, MAX_GPUS, keys, parse_quantity};

/// Prefix of all of KubeShare's labels.
pub const PREFIX: &str = "sharedgpu/";
/// The scheduler that manifests for KubeShare name.
pub const SCHEDULER_NAME: &str = "kubeshare-scheduler";

const REQUEST: &str = "sharedgpu/gpu_request";
const LIMIT: &str = "sharedgpu/gpu_limit";
const MEM: &str = "sharedgpu/gpu_mem";
const MODEL: &str = "sharedgpu/gpu_model";
const PRIORITY: &str = "sharedgpu/priority";
const GROUP_NAME: &str = "sharedgpu/group_name";
const GROUP_HEADCOUNT: &str = "sharedgpu/group_headcount";
const GROUP_THRESHOLD: &str = "sharedgpu/group_threshold";
/// Labels with a meaning, and two that KubeShare itself ignores.
const KNOWN: [&str; 10] = [
    REQUEST,
    LIMIT,
    MEM,
    MODEL,
    PRIORITY,
    GROUP_NAME,
    GROUP_HEADCOUNT,
    GROUP_THRESHOLD,
    "sharedgpu/min_available",
    "sharedgpu/pod_group_name",
];

const NUMBER_ALLOWED: &str = "a decimal from 0 to 1, or a whole number up to 64";

const MEM_ALLOWED: &str = "a whole number of bytes, at least 1048576 (1 MiB), or 0 for the share's part";

/// Result of translating a pod's labels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Translation {
    /// The equivalent annotations. Empty for pods that request no GPU from KubeShare.
    pub annotations: BTreeMap<String, String>,
    /// Warnings for the user.
    pub warnings: Vec<String>,
}

/// The annotations for KubeShare's labels. Existing annotations of Sluice must have the same meaning.
///
/// # Errors
/// Every mistake at once: label or annotation, value, and the allowed values.
pub fn translate(
    labels: &BTreeMap<String, String>,
    annotations: &BTreeMap<String, String>,
) -> Result<Translation, Mistakes> {
    let mut reader = Reader { labels, mistakes: Vec::new(), out: Translation::default() };
    reader.read();
    let Reader { mut mistakes, out, .. } = reader;
    for (key, value) in &out.annotations {
        if let Some(stated) = annotations.get(key).filter(|stated| !same(key, stated, value)) {
            let allowed = format!("the pod's {PREFIX} labels say {value:?}; keep one of the two");
            mistakes.push(Mistake::new(key, stated, allowed));
        }
    }
    Mistakes::check(mistakes).map(|()| out)
}

/// Whether two values of a key have the same meaning.
fn same(key: &str, left: &str, right: &str) -> bool {
    left == right
        || match key {
            keys::QUOTA | keys::LIMIT => parse_quota(left).is_some_and(|one| parse_quota(right) == Some(one)),
            keys::MEMORY => parse_quantity(left).is_some_and(|one| parse_quantity(right) == Some(one)),
            keys::PRIORITY => parse_class(left).is_some_and(|one| parse_class(right) == Some(one)),
            keys::GPU_MODEL => left.replace(' ', "-") == right.replace(' ', "-"),
            _ => false,
        }
}

struct Reader<'a> {
    labels: &'a BTreeMap<String, String>,
    mistakes: Vec<Mistake>,
    out: Translation,
}

impl Reader<'_> {
    fn read(&mut self) {
        let request = self.value(REQUEST, NUMBER_ALLOWED, number);
        let limit = self.value(LIMIT, NUMBER_ALLOWED, number);
        let memory = self.value(MEM, MEM_ALLOWED, bytes).filter(|bytes| *bytes > 0);
        if !self.mistakes.is_empty() {
            return;
        }
        let zero = |number: Option<Number>| number.is_none_or(|number| number.ppm == 0 && number.exact);
        if zero(request) && zero(limit) && (limit.is_some() || memory.is_none()) {
            return;
        }
        let Some(limit) = limit else {
            self.mistakes.push(Mistake::missing(LIMIT, "KubeShare wants it on every GPU pod"));
            return;
        };
        let request = request.unwrap_or(Number { ppm: 0, exact: true });
        if request.ppm > WHOLE_PPM {
            self.whole_gpus(request, limit, memory)
        } else {
            self.share(request, limit, memory)
        }
        self.rest();
    }

    fn share(&mut self, request: Number, limit: Number, memory: Option<u64>) {
        for (key, number) in [(REQUEST, request), (LIMIT, limit)] {
            if number.ppm == 0 && !number.exact {
                self.refuse(key, "at least 0.001");
            } else if !number.exact {
                self.out.warnings.push(format!("{key} is rounded down to thousandths: {number}"));
            }
        }
        if limit.ppm > WHOLE_PPM {
            self.refuse(LIMIT, &format!("at most 1 where {REQUEST} is at most 1"));
        } else if limit.ppm < request.ppm {
            self.refuse(LIMIT, &format!("at least {REQUEST}"));
        }
        if request.ppm > 0 {
            self.set(keys::QUOTA, request.to_string());
        } else if request.exact && memory.is_none() {
            self.mistakes.push(Mistake::missing(MEM, format!("it may only be left out beside {REQUEST}")));
        }
        self.set(keys::LIMIT, limit.to_string());
        if let Some(bytes) = memory {
            self.set(keys::MEMORY, bytes.to_string());
        }
    }

    fn whole_gpus(&mut self, request: Number, limit: Number, memory: Option<u64>) {
        if limit != request {
            self.refuse(LIMIT, &format!("the same as {REQUEST} where that is above 1"));
        }
        self.set(keys::QUOTA, request.to_string());
        if memory.is_some() {
            self.out.warnings.push(format!("{MEM} has no effect: whole GPUs come with all of their memory"));
        }
    }

    /// Model, priority and group of a GPU pod.
    fn rest(&mut self) {
        if let Some(model) = self.value(MODEL, "a GPU model, spaces as '-'", model) {
            self.set(keys::GPU_MODEL, model);
        }
        if let Some(priority) = self.value(PRIORITY, "a whole number from -1 to 100", priority) {
            let ours = if priority > 0 { Class::High } else { Class::BestEffort };
            self.set(keys::PRIORITY, ours.name().to_owned());
        }
        let name = self.value(GROUP_NAME, "a name of lower-case letters, digits and dashes", |text| {
            is_label(text).then(|| text.to_owned())
        });
        let headcount = self.value(GROUP_HEADCOUNT, "a whole number from 1 to 4096", |text| {
            whole(text).and_then(|count| u32::try_from(count).ok()).filter(|count| (1..=4096).contains(count))
        });
        let threshold = self.value(GROUP_THRESHOLD, "a decimal above 0 and at most 1", |text| {
            let (millionths, _) = Decimal::parse(text)?.times(1_000_000);
            (1..=1_000_000).contains(&millionths).then_some(millionths)
        });
        if let (Some(name), Some(_), Some(_)) = (name, headcount, threshold) {
            self.set(keys::GANG, name);
        }
        for label in self.labels.keys().filter(|label| label.starts_with(PREFIX)) {
            if !KNOWN.contains(&label.as_str()) {
                self.out.warnings.push(format!("label {label} has no meaning"));
            }
        }
        if self.labels.contains_key("sharedgpu/pod_group_name") {
            self.out
                .warnings
                .push(format!("label sharedgpu/pod_group_name has no meaning: it is {GROUP_NAME}"));
        }
    }

    fn value<T>(&mut self, label: &str, allowed: &str, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
        let value = parse(self.labels.get(label)?);
        if value.is_none() {
            self.refuse(label, allowed);
        }
        value
    }

    fn refuse(&mut self, label: &str, allowed: &str) {
        let found = self.labels.get(label).cloned().unwrap_or_default();
        self.mistakes.push(Mistake::new(label, found, allowed));
    }

    fn set(&mut self, key: &str, value: String) {
        self.out.annotations.insert(key.to_owned(), value);
    }
}

/// A share or a count of GPUs in parts per million, rounded down to thousandths.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Number {
    ppm: u32,
    exact: bool,
}

/// As annotations state it: a share, or the number of whole GPUs above one.
impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Share::from_ppm(self.ppm) {
            Some(share) => share.fmt(f),
            None => (self.ppm / WHOLE_PPM).fmt(f),
        }
    }
}

fn number(text: &str) -> Option<Number> {
    let decimal =
        if text.starts_with('.') { Decimal::parse(&format!("0{text}")) } else { Decimal::parse(text) }?;
    let (thousandths, exact) = decimal.times(WHOLE_PPM / THOUSANDTH_PPM);
    let ppm = u32::try_from(thousandths).ok()?.checked_mul(THOUSANDTH_PPM)?;
    let is_share = ppm < WHOLE_PPM;
    let is_whole = exact && ppm.is_multiple_of(WHOLE_PPM) && ppm <= MAX_GPUS * WHOLE_PPM;
    (is_share || is_whole).then_some(Number { ppm, exact })
}

fn whole(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

fn bytes(text: &str) -> Option<u64> {
    whole(text).filter(|bytes| *bytes == 0 || *bytes >= MIN_MEMORY)
}

fn priority(text: &str) -> Option<i32> {
    text.parse().ok().filter(|priority| (-1..=100).contains(priority))
}

fn model(text: &str) -> Option<String> {
    parse_list(text, is_model).map(|_| text.to_owned())
}

#[cfg(test)]
mod tests;
