//! Amounts that containers state as extended resources, as requests or as limits: device slots, thousandths of a GPU,
//! MiB of its memory.

use std::collections::BTreeMap;

use sluice_placement::annotations::{Amount, MAX_GPUS, Mistake, keys, parse_quantity};
use sluice_placement::countable::WHOLE_MILLI;
use sluice_placement::{Countable, Demand};

use super::containers::PodContainer;

const MILLI_ALLOWED: &str =
    "thousandths of one GPU, 1 to 1000, or 2 to 64 whole GPUs in thousandths (2000, 3000 …)";

/// An amount as a container states it.
#[derive(Clone, Debug)]
pub(super) struct StatedAmount<'a> {
    /// Where it stands, for messages.
    pub(super) path: String,
    pub(super) text: &'a str,
    /// `None` if the text is no whole number.
    pub(super) value: Option<u64>,
}

impl StatedAmount<'_> {
    fn mistake(&self, allowed: impl Into<String>) -> Mistake {
        Mistake::new(&self.path, self.text, allowed)
    }
}

/// The share and the memory that a pod states as resources, and the annotations that they stand for. Resources are sums
/// over the pod's GPUs, annotations are amounts of each GPU.
#[derive(Debug, Default)]
pub(super) struct StatedRequest<'a> {
    milli: Option<StatedAmount<'a>>,
    memory_mib: Option<StatedAmount<'a>>,
}

impl<'a> StatedRequest<'a> {
    /// Reads the containers. All amounts of one resource have to be equal: the pod's containers share them.
    pub(super) fn read(containers: &[PodContainer<'a>], mistakes: &mut Vec<Mistake>) -> Self {
        for container in containers {
            mistakes.extend(unknown(container));
        }
        let mut only = |resource| only_amount(containers, resource, mistakes);
        Self { milli: only(keys::MILLI), memory_mib: only(keys::MEMORY_MIB) }
    }

    /// Adds the annotations that the pod does not have itself. `slots` are the device slots that it states. Returns where the
    /// values of the annotations stand.
    pub(super) fn add_annotations(
        &self,
        annotations: &mut BTreeMap<String, String>,
        slots: Option<u64>,
        mistakes: &mut Vec<Mistake>,
    ) -> BTreeMap<&'static str, StatedAmount<'a>> {
        let mut added = BTreeMap::new();
        let gpus = self.gpus(annotations, slots);
        if gpus > 1 {
            annotations.entry(keys::GPUS.to_owned()).or_insert_with(|| gpus.to_string());
        }
        if let Some(stated) = &self.milli
            && !annotations.contains_key(keys::QUOTA)
        {
            match stated.value.and_then(|milli| amount_of_each(milli, gpus)) {
                Some(amount) => {
                    annotations.insert(keys::QUOTA.to_owned(), amount.to_string());
                    added.insert(keys::QUOTA, stated.clone());
                }
                None if gpus == 1 => mistakes.push(stated.mistake(MILLI_ALLOWED)),
                None => {
                    let most = gpus.saturating_mul(WHOLE_MILLI);
                    let allowed =
                        format!("thousandths of all {gpus} GPUs: a multiple of {gpus}, at most {most}");
                    mistakes.push(stated.mistake(allowed));
                }
            }
        }
        if let Some(stated) = &self.memory_mib
            && let Some(mib) = stated.value
            && !annotations.contains_key(keys::MEMORY)
        {
            if mib.is_multiple_of(gpus) {
                annotations.insert(keys::MEMORY.to_owned(), format!("{}Mi", mib / gpus));
                added.insert(keys::MEMORY, stated.clone());
            } else {
                mistakes.push(stated.mistake(format!("MiB of all {gpus} GPUs: a multiple of {gpus}")));
            }
        }
        added
    }

    /// The number of GPUs of which the amounts are sums: the annotation's. In a request that has neither a quota nor a memory
    /// as annotations, it is the number of device slots.
    fn gpus(&self, annotations: &BTreeMap<String, String>, slots: Option<u64>) -> u64 {
        if let Some(text) = annotations.get(keys::GPUS) {
            // The annotations' parser reports a value that is no number of GPUs.
            return text.parse::<u32>().map_or(1, |gpus| gpus.max(1).into());
        }
        let is_request = [keys::QUOTA, keys::MEMORY].iter().any(|key| annotations.contains_key(*key));
        let milli = self.milli.as_ref().and_then(|stated| stated.value);
        let is_whole = |slots: u64| self.memory_mib.is_none() && milli == Some(slots * WHOLE_MILLI);
        let is_stated = self.milli.is_some() || self.memory_mib.is_some();
        let slots = slots.filter(|slots| (1..=u64::from(MAX_GPUS)).contains(slots) && !is_whole(*slots));
        slots.filter(|_| is_stated && !is_request).unwrap_or(1)
    }

    /// Amounts that differ from those of the pod's annotations.
    pub(super) fn conflicts(&self, demand: &Demand, annotations: &BTreeMap<String, String>) -> Vec<Mistake> {
        let Countable { milli, memory_mib, .. } = demand.countable();
        let pairs = [(&self.milli, milli, keys::QUOTA), (&self.memory_mib, memory_mib, keys::MEMORY)];
        let conflict = |(stated, wanted, key): (&Option<StatedAmount<'_>>, u64, &str)| {
            let stated = stated.as_ref().filter(|stated| stated.value != Some(wanted))?;
            let said = annotations.get(key)?;
            let gpus = match annotations.get(keys::GPUS) {
                Some(gpus) => format!(" with {} {gpus:?}", keys::GPUS),
                None => String::new(),
            };
            Some(stated.mistake(format!("{wanted}, as {key} {said:?}{gpus} says; keep one of the two")))
        };
        pairs.into_iter().filter_map(conflict).collect()
    }
}

/// The amount of each of these GPUs, where `milli` is the sum.
fn amount_of_each(milli: u64, gpus: u64) -> Option<Amount> {
    if gpus == 1 {
        return Amount::from_milli(milli);
    }
    let each = Some(milli / gpus).filter(|each| milli.is_multiple_of(gpus) && *each <= WHOLE_MILLI);
    each.and_then(Amount::from_milli)
}

/// The amount of a resource that containers state; zeros count as nothing.
fn only_amount<'a>(
    containers: &[PodContainer<'a>],
    resource: &'static str,
    mistakes: &mut Vec<Mistake>,
) -> Option<StatedAmount<'a>> {
    let mut first: Option<StatedAmount<'a>> = None;
    let stated = containers.iter().flat_map(|container| container.stated(resource));
    for amount in stated.filter(|amount| amount.value != Some(0)) {
        match &first {
            _ if amount.value.is_none() && resource == keys::MILLI => {
                mistakes.push(amount.mistake(MILLI_ALLOWED))
            }
            _ if amount.value.is_none() => mistakes.push(amount.mistake("a whole number of MiB")),
            None => first = Some(amount),
            Some(first) if first.value == amount.value => {}
            Some(first) => mistakes.push(amount.mistake(format!("{}, as in {}", first.text, first.path))),
        }
    }
    first
}

/// A typing error would otherwise leave a pod waiting for a resource that no node has.
fn unknown(container: &PodContainer<'_>) -> Vec<Mistake> {
    let unknown = container
        .amounts()
        .filter(|(name, _)| name.starts_with(keys::PREFIX) && !keys::RESOURCES.contains(name));
    let allowed = format!("no such resource; there are {}", keys::RESOURCES.join(", "));
    unknown.map(|(_, stated)| stated.mistake(&allowed)).collect()
}

/// Of the containers with the GPU that run as long as the pod, the one that states the pod's time and memory: Kubernetes adds up
/// what these containers request, so the others state device slots only. It is the first that states an amount already, or the
/// first of all.
pub(super) fn share_holder<'a>(
    containers: &'a [PodContainer<'_>],
    is_chosen: impl Fn(&str) -> bool,
) -> Option<&'a str> {
    let chosen = || containers.iter().filter(|one| one.is_long_running() && is_chosen(&one.spec.name));
    let states = |container: &&PodContainer<'_>| {
        let mut stated = [keys::MILLI, keys::MEMORY_MIB].into_iter().flat_map(|key| container.stated(key));
        stated.any(|stated| stated.value != Some(0))
    };
    chosen().find(states).or_else(|| chosen().next()).map(|container| container.spec.name.as_str())
}

/// What a container with the GPU has to state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ContainerAmounts<'a> {
    wanted: Countable,
    /// The container that states the pod's time and memory, if it is another one.
    other_holder: Option<&'a str>,
}

impl<'a> ContainerAmounts<'a> {
    /// `holder` as [`share_holder`] has it. An init container that ends states everything: Kubernetes does not add it up.
    pub(super) fn of(demand: &Demand, container: &PodContainer<'_>, holder: Option<&'a str>) -> Self {
        let all = demand.countable();
        match holder.filter(|holder| container.is_long_running() && *holder != container.spec.name) {
            None => Self { wanted: all, other_holder: None },
            other => {
                Self { wanted: Countable { slots: all.slots, ..Countable::default() }, other_holder: other }
            }
        }
    }

    /// Amounts that the container states itself, and that differ. Zero slots would be worse than too many: the variable would
    /// still show the GPU, and kubelet would not mount the library.
    pub(super) fn mistakes(&self, container: &PodContainer<'_>) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        for (resource, wanted) in self.wanted.resources() {
            let wrong = container.stated(resource).filter(|stated| stated.value != Some(wanted));
            let allowed = match self.other_holder {
                Some(holder) if resource != keys::RESOURCE => {
                    format!(
                        "nothing: container {holder} states it for the pod, and Kubernetes adds up what both request"
                    )
                }
                _ => format!("{wanted} or nothing: the container gets the pod's GPU"),
            };
            mistakes.extend(wrong.map(|stated| stated.mistake(&allowed)));
        }
        mistakes
    }

    /// The amounts by the name of their resource.
    pub(super) fn to_map(self) -> BTreeMap<String, String> {
        let counted = self.wanted.resources().into_iter().filter(|(_, amount)| *amount > 0);
        counted.map(|(resource, amount)| (resource.to_owned(), amount.to_string())).collect()
    }
}

/// The first resource of Sluice of which the container states an amount that is not zero.
pub(super) fn named_resource(container: &PodContainer<'_>) -> Option<&'static str> {
    let is_named = |resource: &str| container.stated(resource).any(|stated| stated.value != Some(0));
    keys::RESOURCES.into_iter().find(|resource| is_named(resource))
}

impl<'a> PodContainer<'a> {
    /// Every resource in its limits and in its requests.
    pub(super) fn amounts(&self) -> impl Iterator<Item = (&'a str, StatedAmount<'a>)> {
        let resources = self.spec.resources.as_ref();
        let limits = resources.and_then(|resources| resources.limits.as_ref());
        let requests = resources.and_then(|resources| resources.requests.as_ref());
        let shown = self.shown();
        [("limits", limits), ("requests", requests)].into_iter().flat_map(move |(list, map)| {
            let shown = shown.clone();
            map.into_iter().flatten().map(move |(resource, quantity)| {
                let path = format!("{shown}.resources.{list}[{resource}]");
                let text = quantity.0.as_str();
                (resource.as_str(), StatedAmount { path, text, value: parse_quantity(text) })
            })
        })
    }

    /// The resource's amounts in its limits and in its requests.
    pub(super) fn stated(&self, resource: &str) -> impl Iterator<Item = StatedAmount<'a>> {
        self.amounts().filter(move |(name, _)| *name == resource).map(|(_, stated)| stated)
    }
}
