//! Entitled shares: what each of the active clients is to get, by their requests and limits. A pure function.

/// Least share of a client without a request, while it has work.
const LEAST: f64 = 0.01;

/// Request and limit of a client, as parts of the GPU.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Terms {
    pub(super) request: f64,
    pub(super) limit: f64,
}

/// The entitled share of each of these clients, which are all active and of one class. Clients without a request share what the
/// requests leave equally. If all have requests, what is left is shared in proportion to the requests. What a limit keeps from a
/// client goes to the others in proportion to their weights.
pub(super) fn entitled_shares(clients: &[Terms]) -> Vec<f64> {
    let weights = weights(clients);
    let mut shares = vec![0.0; clients.len()];
    let mut open: Vec<usize> = (0..clients.len()).collect();
    let mut left = 1.0;
    loop {
        let sum: f64 = open.iter().map(|index| weights[*index]).sum();
        if open.is_empty() || sum <= 0.0 {
            return shares;
        }
        let fair = |index: usize| left * weights[index] / sum;
        let (capped, rest): (Vec<usize>, Vec<usize>) =
            open.iter().partition(|index| fair(**index) > clients[**index].limit);
        if capped.is_empty() {
            open.iter().for_each(|index| shares[*index] = fair(*index));
            return shares;
        }
        for index in capped {
            shares[index] = clients[index].limit;
            left -= clients[index].limit;
        }
        open = rest;
    }
}

fn weights(clients: &[Terms]) -> Vec<f64> {
    let requested: f64 = clients.iter().map(|client| client.request).sum();
    let without = clients.iter().filter(|client| client.request == 0.0).count();
    let each = ((1.0 - requested) / without.max(1) as f64).max(LEAST);
    clients.iter().map(|client| if client.request == 0.0 { each } else { client.request }).collect()
}

#[cfg(test)]
mod tests;
