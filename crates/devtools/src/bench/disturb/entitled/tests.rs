use super::*;

fn shares(clients: &[(f64, f64)]) -> Vec<f64> {
    let terms: Vec<Terms> =
        clients.iter().map(|(request, limit)| Terms { request: *request, limit: *limit }).collect();
    entitled_shares(&terms).into_iter().map(|share| (share * 1e4).round() / 1e4).collect()
}

#[test]
fn what_requests_leave_is_shared_in_proportion_to_them() {
    assert_eq!(shares(&[(0.5, 1.0), (0.5, 1.0)]), [0.5, 0.5]);
    assert_eq!(shares(&[(0.3, 1.0), (0.3, 1.0)]), [0.5, 0.5]);
    assert_eq!(shares(&[(0.5, 1.0), (0.45, 1.0)]), [0.5263, 0.4737]);
    assert_eq!(shares(&[(0.2, 1.0)]), [1.0]);
}

#[test]
fn clients_without_a_request_share_what_is_left_equally() {
    assert_eq!(shares(&[(0.9, 1.0), (0.0, 1.0), (0.0, 1.0)]), [0.9, 0.05, 0.05]);
    assert_eq!(shares(&[(0.0, 1.0), (0.0, 1.0)]), [0.5, 0.5]);
}

#[test]
fn a_client_without_a_request_gets_a_hundredth_beside_requests_for_everything() {
    assert_eq!(shares(&[(1.0, 1.0), (0.0, 1.0)]), [0.9901, 0.0099]);
}

#[test]
fn what_a_limit_keeps_from_a_client_goes_to_the_others() {
    assert_eq!(shares(&[(0.5, 0.5), (0.3, 1.0)]), [0.5, 0.5]);
    assert_eq!(shares(&[(0.2, 0.2), (0.2, 0.3), (0.1, 1.0)]), [0.2, 0.3, 0.5]);
    assert_eq!(shares(&[(0.5, 0.5)]), [0.5], "the GPU idles");
}
