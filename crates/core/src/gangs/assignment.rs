//! Which gang has which slot: an interval colouring of the gangs, in which gangs with a common GPU have different intervals.

use super::slots::{CYCLE_BY_GRANTS_NS, CYCLE_NS, CYCLE_PER_GPU_NS, LONGEST_CYCLE_NS, SHORTEST_NS, Slot};
use std::collections::{BTreeMap, BTreeSet};

/// What the manager of one GPU tells the others about its clients with processes, by the names of their gangs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GangTable {
    /// The shares to which the clients that are not latency-critical are entitled. Only the proportions count.
    pub shares: BTreeMap<String, u32>,
    /// The latency-critical clients.
    pub critical: BTreeSet<String>,
    /// The manager has no controls of channel groups: it schedules by grants.
    pub by_grants: bool,
}

/// The gangs of a node: the clients with processes on several GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeGangs {
    /// The slot of each gang that is not latency-critical.
    pub slots: BTreeMap<String, Slot>,
    /// The latency-critical gangs.
    pub critical: BTreeSet<String>,
    /// Length of a cycle.
    pub cycle_ns: u64,
}

impl Default for NodeGangs {
    fn default() -> Self {
        Self { slots: BTreeMap::new(), critical: BTreeSet::new(), cycle_ns: CYCLE_NS }
    }
}

/// A gang that has no slot yet.
struct Gang<'t> {
    name: &'t str,
    gpus: BTreeSet<usize>,
    /// Its part of the cycle: the smallest of those to which it is entitled on its GPUs.
    length_ns: u64,
}

/// The gangs: the names in the tables of several GPUs. A slot is as long as the smallest share to which the gang is entitled on
/// its GPUs, unless the gangs that overlap do not fit into a cycle; then the slots of all of them are shorter by the same factor.
///
/// The result depends on the tables alone and not on their order, so that every manager comes to the same.
#[must_use]
pub fn assign(tables: &[GangTable]) -> NodeGangs {
    let cycle_ns = cycle_of(tables);
    let mut placed: Vec<(Gang, Slot)> = Vec::new();
    for gang in by_length(gangs(tables, cycle_ns)) {
        let slot = first_gap(&gang, &placed);
        placed.push((gang, slot));
    }
    let ends = latest_ends(&placed);
    let scaled = |ns: u64, end: u64| {
        let scaled = u128::from(ns) * u128::from(cycle_ns) / u128::from(end.max(cycle_ns));
        u64::try_from(scaled).unwrap_or(cycle_ns)
    };
    let slots = placed.iter().zip(ends).map(|((gang, slot), end)| {
        let slot = Slot { start_ns: scaled(slot.start_ns, end), end_ns: scaled(slot.end_ns, end) };
        (gang.name.to_owned(), slot)
    });
    let slots = slots.filter(|(_, slot)| slot.start_ns < slot.end_ns).collect();
    NodeGangs { slots, critical: critical_gangs(tables), cycle_ns }
}

/// Length of a cycle: longer with each GPU that gangs use beyond two.
fn cycle_of(tables: &[GangTable]) -> u64 {
    let is_gang = |name: &String| tables.iter().filter(|table| table.shares.contains_key(name)).count() > 1;
    let gpus = tables.iter().filter(|table| table.shares.keys().any(is_gang)).count();
    let by_grants = tables.iter().any(|table| table.by_grants);
    let least = if by_grants { CYCLE_BY_GRANTS_NS } else { CYCLE_NS };
    let gpus = u64::try_from(gpus).unwrap_or(u64::MAX);
    CYCLE_PER_GPU_NS.saturating_mul(gpus.saturating_sub(1)).clamp(least, LONGEST_CYCLE_NS)
}

fn critical_gangs(tables: &[GangTable]) -> BTreeSet<String> {
    let (mut seen, mut gangs) = (BTreeSet::new(), BTreeSet::new());
    for name in tables.iter().flat_map(|table| &table.critical) {
        if !seen.insert(name) {
            gangs.insert(name.clone());
        }
    }
    gangs
}

fn gangs(tables: &[GangTable], cycle_ns: u64) -> Vec<Gang<'_>> {
    let mut gangs: BTreeMap<&str, Gang<'_>> = BTreeMap::new();
    for (gpu, table) in tables.iter().enumerate() {
        let total: u64 = table.shares.values().map(|share| u64::from(*share)).sum();
        for (name, share) in &table.shares {
            let length_ns = u64::from(*share) * cycle_ns / total.max(1);
            let gang = gangs.entry(name).or_insert_with(|| Gang {
                name,
                gpus: BTreeSet::new(),
                length_ns: cycle_ns,
            });
            gang.gpus.insert(gpu);
            gang.length_ns = gang.length_ns.min(length_ns);
        }
    }
    let several = gangs.into_values().filter(|gang| gang.gpus.len() > 1);
    several.map(|gang| Gang { length_ns: gang.length_ns.max(SHORTEST_NS), ..gang }).collect()
}

/// The longest first: short ones fit into the gaps. Ties go by name.
fn by_length(mut gangs: Vec<Gang<'_>>) -> Vec<Gang<'_>> {
    gangs.sort_by(|a, b| b.length_ns.cmp(&a.length_ns).then(a.name.cmp(b.name)));
    gangs
}

/// The earliest interval that overlaps with none of a gang on the same GPU.
fn first_gap(gang: &Gang<'_>, placed: &[(Gang<'_>, Slot)]) -> Slot {
    let shares_gpu = |(other, _): &&(Gang<'_>, Slot)| !gang.gpus.is_disjoint(&other.gpus);
    let mut taken: Vec<Slot> = placed.iter().filter(shares_gpu).map(|(_, slot)| *slot).collect();
    taken.sort_unstable();
    let mut start_ns = 0;
    for slot in taken {
        if start_ns + gang.length_ns <= slot.start_ns {
            break;
        }
        start_ns = start_ns.max(slot.end_ns);
    }
    Slot { start_ns, end_ns: start_ns + gang.length_ns }
}

/// For each gang the latest end among the gangs that are connected with it by common GPUs.
fn latest_ends(placed: &[(Gang<'_>, Slot)]) -> Vec<u64> {
    let mut ends: Vec<u64> = placed.iter().map(|(_, slot)| slot.end_ns).collect();
    // The latest end reaches one more gang of a chain in each pass.
    for _ in placed {
        let before = ends.clone();
        for (at, (gang, _)) in placed.iter().enumerate() {
            let connected =
                placed.iter().zip(&ends).filter(|((other, _), _)| !gang.gpus.is_disjoint(&other.gpus));
            ends[at] = connected.map(|(_, end)| *end).max().unwrap_or(0);
        }
        if ends == before {
            break;
        }
    }
    ends
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    fn table(clients: &[(&str, u32)]) -> GangTable {
        let shares = clients.iter().map(|(name, share)| ((*name).to_owned(), *share)).collect();
        GangTable { shares, ..GangTable::default() }
    }

    fn in_ms(gangs: &NodeGangs) -> Vec<(&str, u64, u64)> {
        gangs.slots.iter().map(|(name, slot)| (name.as_str(), slot.start_ns / MS, slot.end_ns / MS)).collect()
    }

    #[test]
    fn two_jobs_divide_the_cycle_by_their_shares() {
        let both = table(&[("a", 300_000), ("b", 700_000)]);
        assert_eq!(in_ms(&assign(&[both.clone(), both])), [("a", 140, 200), ("b", 0, 140)]);
    }

    #[test]
    fn clients_of_one_gpu_leave_no_gap_of_theirs_to_gangs() {
        let first = table(&[("a", 400_000), ("c", 600_000)]);
        let second = table(&[("a", 400_000), ("d", 100_000)]);
        // 0.4 of the first GPU is less than 0.8 of the second.
        assert_eq!(in_ms(&assign(&[first, second])), [("a", 0, 80)]);
    }

    #[test]
    fn clients_of_one_gpu_each_have_no_slots() {
        let tables = [table(&[("a", 500_000)]), table(&[("b", 500_000)])];
        assert_eq!(assign(&tables), NodeGangs::default());
        assert_eq!(assign(&[]), NodeGangs::default());
    }

    #[test]
    fn gangs_in_a_circle_get_equal_parts_of_a_cycle() {
        let pair = |one, other| table(&[(one, 500_000), (other, 500_000)]);
        let slots = assign(&[pair("a", "b"), pair("b", "c"), pair("a", "c")]);
        // Each half of every GPU, but no two at once: three thirds.
        assert_eq!(in_ms(&slots), [("a", 0, 100), ("b", 100, 200), ("c", 200, 300)]);
    }

    #[test]
    fn cycle_is_longer_with_each_gpu_that_gangs_use_up_to_a_bound() {
        let (gang, local) = (table(&[("a", 500_000)]), table(&[("b", 500_000)]));
        let cycle_of = |gpus: usize| {
            let gpus = std::iter::repeat_n(gang.clone(), gpus).chain([local.clone()]);
            assign(&gpus.collect::<Vec<_>>()).cycle_ns / MS
        };
        assert_eq!([0, 2, 3, 4, 8, 16].map(cycle_of), [200, 200, 300, 450, 800, 800]);
    }

    #[test]
    fn cycle_is_longer_on_all_gpus_if_one_manager_schedules_by_grants() {
        let both = table(&[("a", 300_000), ("b", 700_000)]);
        let gangs = assign(&[both.clone(), GangTable { by_grants: true, ..both }]);
        assert_eq!(in_ms(&gangs), [("a", 280, 400), ("b", 0, 280)]);
        assert_eq!(gangs.cycle_ns, CYCLE_BY_GRANTS_NS);
    }

    #[test]
    fn latency_critical_clients_of_several_gpus_are_gangs_without_slots() {
        let of = |names: &[&str]| GangTable {
            critical: names.iter().map(|name| (*name).to_owned()).collect(),
            ..GangTable::default()
        };
        let gangs = assign(&[of(&["tp", "alone"]), of(&["tp"])]);
        assert_eq!(gangs, NodeGangs { critical: ["tp".to_owned()].into(), ..NodeGangs::default() });
    }

    proptest! {
        #[test]
        fn no_two_gangs_of_a_gpu_overlap_and_all_managers_agree(
            shares in prop::collection::vec(prop::collection::btree_map("[a-f]", 1_u32..1_000_000, 0..6), 0..6),
        ) {
            let tables = shares.into_iter().map(|shares| GangTable { shares, ..GangTable::default() });
            let tables: Vec<GangTable> = tables.collect();
            let NodeGangs { slots, cycle_ns, .. } = assign(&tables);
            for table in &tables {
                let mut on_gpu: Vec<&Slot> = table.shares.keys().filter_map(|name| slots.get(name)).collect();
                on_gpu.sort();
                for pair in on_gpu.windows(2) {
                    prop_assert!(pair[0].end_ns <= pair[1].start_ns, "{slots:?}");
                }
                prop_assert!(on_gpu.iter().all(|slot| slot.start_ns < slot.end_ns && slot.end_ns <= cycle_ns));
            }
            let reversed: Vec<GangTable> = tables.iter().rev().cloned().collect();
            prop_assert_eq!(assign(&reversed).slots, slots);
        }
    }
}
