//! The connections that are open, and which of them is closed for a new one.

use super::{MAX_CONNECTIONS, MAX_OF_ADDRESS};
use std::collections::HashMap;
use std::net::IpAddr;
use tokio::task::JoinHandle;

/// One connection: the address of its peer, and the task that serves it.
#[derive(Debug)]
struct Open {
    address: IpAddr,
    task: JoinHandle<()>,
}

/// All connections, oldest first.
#[derive(Debug, Default)]
pub(crate) struct OpenConnections(Vec<Open>);

impl OpenConnections {
    /// Adds a connection, and closes an older one if there are too many now. The older one is closed when this returns.
    pub(crate) async fn add(&mut self, address: IpAddr, task: JoinHandle<()>) {
        self.0.retain(|open| !open.task.is_finished());
        self.0.push(Open { address, task });
        let addresses: Vec<IpAddr> = self.0.iter().map(|open| open.address).collect();
        if let Some(index) = superfluous(&addresses) {
            let open = self.0.remove(index);
            open.task.abort();
            let _ = open.task.await;
        }
    }

    /// Waits until all connections are closed.
    pub(crate) async fn join(self) {
        for open in self.0 {
            let _ = open.task.await;
        }
    }
}

/// The connection to close after one was added: `addresses` are those of all connections, oldest first.
///
/// A peer with few connections (kubelet, a scraper) keeps them while another address has more.
fn superfluous(addresses: &[IpAddr]) -> Option<usize> {
    let newest = addresses.last()?;
    let mut counts: HashMap<&IpAddr, usize> = HashMap::new();
    for address in addresses {
        *counts.entry(address).or_default() += 1;
    }
    let of_newest = counts.get(newest).copied().unwrap_or(0);
    let most = counts.values().copied().max().unwrap_or(0);
    let closed = |count| addresses.iter().position(|address| counts.get(address) == Some(&count));
    if of_newest > MAX_OF_ADDRESS {
        addresses.iter().position(|address| address == newest)
    } else if addresses.len() > MAX_CONNECTIONS {
        closed(most)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    #[test]
    fn oldest_connection_of_an_address_is_closed_for_its_ninth() {
        let mut addresses = vec![address(1); MAX_OF_ADDRESS];
        assert_eq!(superfluous(&addresses), None);
        addresses.insert(0, address(2));
        addresses.push(address(1));
        assert_eq!(superfluous(&addresses), Some(1));
    }

    #[test]
    fn full_server_closes_a_connection_of_the_address_with_the_most() {
        let mut addresses = vec![address(9)];
        addresses.extend((0..6).flat_map(|_| (1..=4).map(address)));
        addresses.extend([address(5); 7]);
        assert_eq!(addresses.len(), MAX_CONNECTIONS);
        assert_eq!(superfluous(&addresses), None);
        addresses.push(address(9));
        assert_eq!(superfluous(&addresses), Some(25), "the oldest of the address with seven");
    }
}
