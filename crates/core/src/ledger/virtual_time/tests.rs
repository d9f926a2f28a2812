use super::*;
use crate::share::Share;

fn client(class: Class, percent: u32) -> ClientSpec {
    ClientSpec { request: Share::from_ppm(percent * 10_000).unwrap(), limit: Share::ONE, class }
}

/// Weights of all of these clients, active together, in percent.
fn weights(clients: &[ClientSpec]) -> Vec<u64> {
    let mut demand = ActiveDemand::default();
    clients.iter().for_each(|spec| demand.add(spec));
    clients.iter().map(|spec| demand.weight_ppm(spec) / 10_000).collect()
}

#[test]
fn unrequested_time_goes_to_clients_of_one_level_in_proportion_to_their_requests() {
    assert_eq!(weights(&[client(Class::BestEffort, 20), client(Class::BestEffort, 30)]), [40, 60]);
}

#[test]
fn clients_without_a_request_share_the_unrequested_time_equally() {
    let none = client(Class::Normal, 0);
    assert_eq!(weights(&[client(Class::Normal, 60), none, none]), [60, 20, 20]);
}

#[test]
fn least_weights_are_taken_off_the_unrequested_time_and_not_off_the_requests() {
    let (normal, none) = (client(Class::Normal, 10), client(Class::BestEffort, 0));
    let mut clients = vec![none; 10];
    clients.extend([normal, client(Class::BestEffort, 60)]);
    let weights = weights(&clients);
    assert_eq!((weights[0], &weights[10..]), (1, &[30, 60][..]));
    assert_eq!(weights.iter().sum::<u64>(), 100);
}

#[test]
fn client_without_a_request_has_the_least_weight_if_everything_is_requested() {
    assert_eq!(weights(&[client(Class::Normal, 100), client(Class::Normal, 0)]), [100, 1]);
}

#[test]
fn unrequested_time_goes_to_the_best_level_and_requests_of_worse_levels_remain() {
    let clients = [client(Class::High, 20), client(Class::Normal, 30), client(Class::BestEffort, 0)];
    assert_eq!(weights(&clients), [69, 30, 1]);
    assert_eq!(weights(&[client(Class::High, 0), client(Class::BestEffort, 40)]), [60, 40]);
}

#[test]
fn unrequested_time_beyond_the_limits_of_a_level_goes_to_the_next() {
    let limit = Share::from_ppm(200_000).unwrap();
    let high = ClientSpec { limit, ..client(Class::High, 10) };
    let clients = [high, client(Class::Normal, 20), client(Class::BestEffort, 40)];
    assert_eq!(weights(&clients), [20, 40, 40]);
    assert_eq!(weights(&[high, client(Class::BestEffort, 0), client(Class::BestEffort, 40)]), [20, 40, 40]);
}

#[test]
fn request_of_a_latency_critical_client_is_not_given_to_others() {
    let clients =
        [client(Class::LatencyCritical, 40), client(Class::BestEffort, 40), client(Class::BestEffort, 0)];
    assert_eq!(weights(&clients)[1..], [40, 20]);
}

#[test]
fn removed_client_changes_no_weight() {
    let mut demand = ActiveDemand::default();
    let (stays, leaves) = (client(Class::Normal, 30), client(Class::High, 30));
    demand.add(&stays);
    let before = demand.clone();
    demand.add(&leaves);
    demand.remove(&leaves);
    assert_eq!(demand.levels, before.levels);
}

#[test]
fn small_request_is_not_worse_than_none() {
    let tiny = ClientSpec { request: Share::from_ppm(1).unwrap(), ..client(Class::BestEffort, 0) };
    assert_eq!(weights(&[tiny, client(Class::BestEffort, 0)])[0], 1);
}
