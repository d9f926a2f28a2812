//! The search for the clients of one open file: it queries one number after the other, and none twice.

use super::client_numbering::{CLIENT_NUMBERS, ClientNumbering, ClientPosition};
use super::objects::ObjectQueries;
use crate::{ControlError, NvStatus};
use std::cell::Cell;

/// Numbers below the newest ones that a search for newer clients queries again. A client may have been in the making when they were queried.
const QUERIED_AGAIN: u64 = 16;
/// The same if the driver may have stepped ahead: the numbers left out are given out afterwards.
const QUERIED_AGAIN_AFTER_STEP: u64 = 2_048;
/// A search that is further behind the numbering than this is continued between inspections.
const MAX_BEHIND: u64 = 1 << 15;

/// Driver queries that may still be made; each takes a real driver about a microsecond.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryBudget(Cell<u32>);

impl QueryBudget {
    /// A budget of this many queries.
    pub fn new(queries: u32) -> Self {
        Self(Cell::new(queries))
    }

    /// Queries that remain.
    pub fn remaining(&self) -> u32 {
        self.0.get()
    }

    /// Subtracts this many queries.
    pub(super) fn spend(&self, queries: u32) {
        self.0.set(self.0.get().saturating_sub(queries));
    }

    /// Subtracts one query; false if none remained.
    pub(super) fn try_take(&self) -> bool {
        let remaining = self.0.get().checked_sub(1);
        self.0.set(remaining.unwrap_or_default());
        remaining.is_some()
    }

    /// Runs `search` with at most `most` of the remaining queries, and subtracts what it used.
    pub(super) fn lend<T>(&self, most: u32, search: impl FnOnce(&Self) -> T) -> T {
        let lent = Self::new(most.min(self.remaining()));
        let given = lent.remaining();
        let result = search(&lent);
        self.spend(given - lent.remaining());
        result
    }
}

/// What is known of the clients of one open file.
///
/// The queried numbers are one interval of positions. Clients older than the first query are below it, newer ones above it. The
/// interval grows in both directions until it is as long as the numbering.
#[derive(Debug, Clone)]
pub struct ClientSearch {
    /// The lowest queried position, and the first position above the interval.
    low: u64,
    high: u64,
    /// The driver may have stepped ahead before the last search for newer clients.
    has_stepped: bool,
    clients: Vec<u32>,
}

impl ClientSearch {
    /// A search that has queried nothing, for a numbering that has reached `newest`.
    pub fn from(newest: ClientPosition) -> Self {
        Self { low: newest.0 + 1, high: newest.0 + 1, has_stepped: true, clients: Vec::new() }
    }

    /// The clients that existed when they were last queried, newest first.
    pub fn clients(&self) -> &[u32] {
        &self.clients
    }

    /// Whether the last `range` numbers were queried.
    pub fn is_complete(&self, range: u64) -> bool {
        self.high - self.low >= range.min(CLIENT_NUMBERS)
    }

    /// Whether many clients of any process were made since the last query.
    pub fn is_behind(&self, newest: ClientPosition) -> bool {
        newest.0 > self.high + MAX_BEHIND
    }

    /// Forgets which numbers were queried, and keeps the clients.
    pub fn restart(&mut self, newest: ClientPosition) {
        (self.low, self.high) = (newest.0 + 1, newest.0 + 1);
    }

    /// Removes the clients that have been freed. Returns false, and removes none, if no client exists on this descriptor: then it is
    /// probably another file.
    /// Errors: the driver's error instead of an answer.
    pub fn drop_freed(
        &mut self,
        driver: &impl ObjectQueries,
        queries: &QueryBudget,
    ) -> Result<bool, ControlError> {
        let mut existing = Vec::new();
        for client in &self.clients {
            if !queries.try_take() || client_exists(driver, *client)? {
                existing.push(*client);
            }
        }
        let is_same_file = !existing.is_empty();
        if is_same_file {
            self.clients = existing;
        }
        Ok(is_same_file)
    }

    /// Queries the numbers given out since the last call. If the budget ends first, the next call continues.
    /// Errors: the driver's error instead of an answer.
    pub fn search_newer(
        &mut self,
        driver: &impl ObjectQueries,
        numbering: &ClientNumbering,
        queries: &QueryBudget,
    ) -> Result<(), ControlError> {
        let newest = numbering.newest();
        let has_stepped = self.has_stepped || numbering.has_stepped();
        let again = if has_stepped { QUERIED_AGAIN_AFTER_STEP } else { QUERIED_AGAIN };
        let oldest = (newest.0 + 1).saturating_sub(CLIENT_NUMBERS);
        if self.high < oldest {
            // Every queried number was given out again since.
            (self.low, self.high) = (oldest, oldest);
        }
        let mut position = self.high.saturating_sub(again).max(self.low);
        while position <= newest.0 && queries.try_take() {
            self.query(driver, ClientPosition(position))?;
            position += 1;
            self.high = self.high.max(position);
        }
        // Else the budget has ended, perhaps among the numbers that are queried again.
        self.has_stepped = position <= newest.0 && has_stepped || numbering.has_stepped();
        Ok(())
    }

    /// Queries the numbers below the interval, newest first. It ends with the numbers, with the budget, or when `is_enough` returns
    /// true for the clients and the count of positions since the last found client.
    /// Errors: the driver's error instead of an answer.
    pub fn search_older(
        &mut self,
        driver: &impl ObjectQueries,
        range: u64,
        queries: &QueryBudget,
        is_enough: impl Fn(&[u32], u64) -> bool,
    ) -> Result<(), ControlError> {
        let mut since = 0;
        while !self.is_complete(range)
            && !is_enough(&self.clients, since)
            && self.low > 0
            && queries.try_take()
        {
            let found = self.query(driver, ClientPosition(self.low - 1))?;
            self.low -= 1;
            since = if found { 0 } else { since + 1 };
        }
        Ok(())
    }

    fn query(&mut self, driver: &impl ObjectQueries, position: ClientPosition) -> Result<bool, ControlError> {
        let client = position.handle();
        if !client_exists(driver, client)? {
            return Ok(false);
        }
        if !self.clients.contains(&client) {
            self.clients.push(client);
            self.clients.sort_unstable_by(|one, other| other.cmp(one));
        }
        Ok(true)
    }
}

/// Whether this client was made over this open file and is alive.
pub(super) fn client_exists(driver: &impl ObjectQueries, client: u32) -> Result<bool, ControlError> {
    match driver.class(client, client) {
        Ok(class) => Ok(class.is_some()),
        Err(ControlError::Refused(NvStatus::INVALID_CLIENT)) => Ok(false),
        Err(error) => Err(error),
    }
}
