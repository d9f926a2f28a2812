//! One command in the ring: eleven words, the first of which is the time of submission. Enums are stored as the number of
//! the variant.

use crate::engine::{CollectiveRank, Compare, Condition, CopyEngine, HoldParams, StreamKind, Work};

/// Words of a command.
pub(crate) const WORDS: usize = 11;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) stamp: u64,
    pub(crate) slot: usize,
    pub(crate) order: Order,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// A new stream in the slot; its commands are numbered from `last_seq + 1`.
    Open { group: u64, kind: StreamKind, priority: i32, last_seq: u64 },
    /// The stream is removed when its commands are done.
    Close,
    /// One piece of work.
    Work(Work),
    /// A graph that the daemon has registered.
    Graph { graph: u64 },
    /// Writes the time into an event's word; `None` for an event without a time.
    Mark { event: Option<usize> },
    /// Waits until the stream of another slot has completed a command.
    Wait { slot: usize, seq: u64 },
    /// Stops the stream until [`Order::HostDone`].
    Host,
    /// A host function has returned.
    HostDone { seq: u64 },
    /// A thread waits for this number of the stream.
    Watch { seq: u64 },
    /// Waits for a word in the client's memory; without a condition, writes one.
    MemOp(Option<Condition>),
    /// A word in the client's memory has this value.
    Word { address: u64, value: u64 },
}

impl Order {
    /// Whether it is a command of the stream, which has a number.
    pub(crate) fn is_numbered(&self) -> bool {
        !matches!(
            self,
            Order::Open { .. }
                | Order::Close
                | Order::HostDone { .. }
                | Order::Watch { .. }
                | Order::Word { .. }
        )
    }
}

impl Record {
    pub(crate) fn encode(&self) -> [u64; WORDS] {
        let mut rest = [0; 4];
        let (code, a, b, c, d) = match self.order {
            Order::Open { group, kind, priority, last_seq } => {
                (1, group, kind as u64, u64::from(priority.cast_unsigned()), last_seq)
            }
            Order::Close => (2, 0, 0, 0, 0),
            Order::Work(Work::Kernel { ns, sms, name }) => (3, ns, sms.into(), name as u64, 0),
            Order::Work(Work::Copy { engine, bytes }) => (4, engine as u64, bytes, 0, 0),
            Order::Work(Work::Fill { bytes }) => (5, bytes, 0, 0, 0),
            Order::Work(Work::Empty) => (6, 0, 0, 0, 0),
            Order::Graph { graph } => (7, graph, 0, 0, 0),
            Order::Mark { event } => (8, event.map_or(u64::MAX, |event| event as u64), 0, 0, 0),
            Order::Wait { slot, seq } => (9, slot as u64, seq, 0, 0),
            Order::Host => (10, 0, 0, 0, 0),
            Order::HostDone { seq } => (11, seq, 0, 0, 0),
            Order::Watch { seq } => (12, seq, 0, 0, 0),
            Order::Work(Work::Hold { address, params, name, times }) => {
                let HoldParams { ticket, activity, timeout_ns, linger_ns, still_ns, longest_ns } = params;
                rest = [still_ns, longest_ns, pack(times[0], times[1]), pack(times[2], name as u64)];
                (13, address, pack(ticket.into(), activity.into()), timeout_ns, linger_ns)
            }
            Order::Work(Work::Collective { rank, ns, sms, name }) => {
                let CollectiveRank { communicator, rank, ranks, parts } = rank;
                rest[0] = parts.into();
                (17, communicator, pack(rank.into(), ranks.into()), ns, pack(sms.into(), name as u64))
            }
            Order::MemOp(None) => (14, 0, 0, 0, 0),
            Order::MemOp(Some(Condition { address, value, compare, is_wide })) => {
                (15, address, value, compare as u64, is_wide.into())
            }
            Order::Word { address, value } => (16, address, value, 0, 0),
        };
        let [e, f, g, h] = rest;
        [self.stamp, code, self.slot as u64, a, b, c, d, e, f, g, h]
    }

    /// `None` for bytes that no client of this version writes.
    pub(crate) fn decode(words: [u64; WORDS]) -> Option<Self> {
        let [stamp, code, slot, a, b, c, d, e, f, g, h] = words;
        let index = |word: u64| usize::try_from(word).ok();
        let order = match code {
            1 => {
                let priority = u32::try_from(c).ok()?.cast_signed();
                Order::Open { group: a, kind: numbered(&StreamKind::ALL, b)?, priority, last_seq: d }
            }
            2 => Order::Close,
            3 => Order::Work(Work::Kernel { ns: a, sms: u32::try_from(b).ok()?, name: index(c)? }),
            4 => Order::Work(Work::Copy { engine: numbered(&CopyEngine::ALL, a)?, bytes: b }),
            5 => Order::Work(Work::Fill { bytes: a }),
            6 => Order::Work(Work::Empty),
            7 => Order::Graph { graph: a },
            8 => Order::Mark { event: if a == u64::MAX { None } else { Some(index(a)?) } },
            9 => Order::Wait { slot: index(a)?, seq: b },
            10 => Order::Host,
            11 => Order::HostDone { seq: a },
            12 => Order::Watch { seq: a },
            13 => {
                let (ticket, activity) = unpack(b);
                let (ticket, activity) = (u32::try_from(ticket).ok()?, u32::try_from(activity).ok()?);
                let params =
                    HoldParams { ticket, activity, timeout_ns: c, linger_ns: d, still_ns: e, longest_ns: f };
                let ((begin, change), (idle, name)) = (unpack(g), unpack(h));
                let times = [begin, change, idle];
                Order::Work(Work::Hold { address: a, params, name: index(name)?, times })
            }
            14 => Order::MemOp(None),
            15 => {
                let compare = numbered(&Compare::ALL, c)?;
                Order::MemOp(Some(Condition { address: a, value: b, compare, is_wide: d != 0 }))
            }
            16 => Order::Word { address: a, value: b },
            17 => {
                let ((rank, ranks), (sms, name)) = (unpack(b), unpack(d));
                let (rank, ranks) = (u32::try_from(rank).ok()?, u32::try_from(ranks).ok()?);
                let rank = CollectiveRank { communicator: a, rank, ranks, parts: u32::try_from(e).ok()? };
                Order::Work(Work::Collective {
                    rank,
                    ns: c,
                    sms: u32::try_from(sms).ok()?,
                    name: index(name)?,
                })
            }
            _ => return None,
        };
        Some(Self { stamp, slot: index(slot)?, order })
    }
}

/// The variant of an enum with this number, from the list of all.
fn numbered<T: Copy>(all: &[T], number: u64) -> Option<T> {
    all.get(usize::try_from(number).ok()?).copied()
}

/// Packs two numbers of 32 bits into a word. A larger number is stored as `u32::MAX`.
fn pack(low: u64, high: u64) -> u64 {
    let part = |value: u64| value.min(u32::MAX.into());
    part(low) | part(high) << 32
}

fn unpack(word: u64) -> (u64, u64) {
    (word & u64::from(u32::MAX), word >> 32)
}

#[cfg(test)]
mod tests;
