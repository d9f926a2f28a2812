//! The order of deadlines, and the bounds on what a report can do to other clients.

use super::*;
use proptest::prelude::*;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const NOW: u64 = 1_000 * MS;

/// An idle service that has just ended a request.
fn service(id: u64, slo_ns: u64, service_ns: u64) -> Service {
    Service {
        process: ProcessId(id),
        client: ClientId(id),
        slo_ns,
        service_ns,
        activity: Activity { busy: false, since_ns: NOW - 100 * MS },
        expected_ns: 0,
        postponed: false,
        within_request: true,
    }
}

fn busy(service: Service, since_ns: u64) -> Service {
    Service { activity: Activity { busy: true, since_ns }, ..service }
}

fn idle(service: Service, since_ns: u64) -> Service {
    Service { activity: Activity { busy: false, since_ns }, ..service }
}

fn expects(service: Service, expected_ns: u64) -> Service {
    Service { expected_ns, ..service }
}

fn order() -> DeadlineOrder {
    DeadlineOrder::new(DeadlinePolicy::default())
}

/// The urgent work of each service, in their order.
fn update(order: &mut DeadlineOrder, now: u64, services: &[Service]) -> Vec<UrgentWork> {
    let result: BTreeMap<ProcessId, UrgentWork> = order.update(now, services).into_iter().collect();
    services.iter().map(|service| result[&service.process]).collect()
}

use UrgentWork::{At, None as Nothing, Now};

#[test]
fn work_of_the_earlier_deadline_is_urgent_for_the_later_one_only() {
    let (resnet, decode) = (service(2, 2 * MS, MS), service(1, 0, 60 * MS));
    let mut order = order();
    assert_eq!(update(&mut order, NOW, &[resnet, decode]), [Nothing, Nothing]);
    assert_eq!(update(&mut order, NOW, &[busy(resnet, NOW), busy(decode, NOW)]), [Nothing, Now]);
    assert!(order.needs_wakeup(resnet.process) && !order.needs_wakeup(decode.process));
}

#[test]
fn learned_duration_is_the_deadline_of_a_client_without_slo() {
    let (short, long) = (service(2, 0, MS), service(1, 3 * MS, 0));
    let both = [busy(short, NOW), busy(long, NOW)];
    assert_eq!(update(&mut order(), NOW, &both), [Nothing, Now]);
    let slower = Service { service_ns: 5 * MS, ..both[0] };
    assert_eq!(update(&mut order(), NOW, &[slower, both[1]]), [Now, Nothing]);
}

#[test]
fn similar_learned_durations_do_not_change_the_order() {
    for (first, second) in [(1_100, 1_900), (1_900, 1_100)] {
        let both = [busy(service(1, 0, first * US), NOW), busy(service(2, 0, second * US), NOW)];
        assert_eq!(update(&mut order(), NOW, &both), [Nothing, Now], "{first} {second}");
    }
}

#[test]
fn client_of_unknown_deadline_delays_no_other_client() {
    let both = [busy(service(1, 0, 0), NOW), busy(service(2, 0, 0), NOW)];
    assert_eq!(update(&mut order(), NOW, &both), [Nothing, Nothing]);
    let known = busy(service(3, 0, MS), NOW);
    assert_eq!(update(&mut order(), NOW, &[both[0], known]), [Now, Nothing]);
}

#[test]
fn processes_of_one_client_do_not_delay_each_other() {
    let first = busy(service(1, 2 * MS, 0), NOW);
    let second = Service { process: ProcessId(9), ..first };
    assert_eq!(update(&mut order(), NOW, &[first, second]), [Nothing, Nothing]);
    let later = service(2, 3 * MS, 0);
    assert_eq!(update(&mut order(), NOW, &[first, second, later]), [Nothing, Nothing, Now]);
}

#[test]
fn third_client_sees_the_earliest_work_of_both_others() {
    let (first, second, third) = (service(1, MS, MS), service(2, 5 * MS, MS), service(3, 0, 60 * MS));
    let (first, second) = (expects(first, NOW + 3 * MS), expects(second, NOW + 2 * MS));
    let mut order = order();
    assert_eq!(
        update(&mut order, NOW, &[first, second, third]),
        [Nothing, At(NOW + 3 * MS), At(NOW + 2 * MS)]
    );
    // A process that waits itself does not make a third one wait for it.
    let waits = Service { postponed: true, ..busy(expects(second, 0), NOW) };
    assert_eq!(
        update(&mut order, NOW, &[first, waits, third]),
        [Nothing, At(NOW + 3 * MS), At(NOW + 3 * MS)]
    );
}

#[test]
fn expected_request_counts_until_it_has_come_or_is_late() {
    let (resnet, decode) = (service(1, 2 * MS, MS), service(2, 0, 60 * MS));
    let (mut order, due) = (order(), NOW + 5 * MS);
    assert_eq!(update(&mut order, NOW, &[expects(resnet, due), decode]), [Nothing, At(due)]);
    assert_eq!(order.wake_at(), Some(due + 500 * US));
    assert_eq!(update(&mut order, due + 400 * US, &[expects(resnet, due), decode]), [Nothing, At(due)]);
    assert_eq!(update(&mut order, due + 500 * US, &[expects(resnet, due), decode]), [Nothing, Nothing]);
    // The next one is seen while the request runs, and counts when it has ended.
    let next = expects(busy(resnet, due + MS), due + 10 * MS);
    assert_eq!(update(&mut order, due + MS, &[next, decode]), [Nothing, Now]);
    assert_eq!(
        update(&mut order, due + 2 * MS, &[idle(next, due + 2 * MS), decode]),
        [Nothing, At(due + 10 * MS)]
    );
}

#[test]
fn pause_within_a_request_leaves_its_work_urgent() {
    let (earlier, later) = (service(1, 2 * MS, 50 * MS), service(2, 0, 60 * MS));
    let mut order = order();
    update(&mut order, NOW, &[busy(earlier, NOW), later]);
    let paused = idle(earlier, NOW + MS);
    assert_eq!(update(&mut order, NOW + MS + 300 * US, &[paused, later]), [Nothing, Now]);
    assert_eq!(update(&mut order, NOW + MS + 380 * US, &[paused, later]), [Nothing, Nothing]);
}

#[test]
fn activity_is_read_often_only_while_a_launch_is_postponed() {
    let (resnet, decode) = (busy(service(1, 2 * MS, MS), NOW), service(2, 0, 60 * MS));
    let mut order = order();
    update(&mut order, NOW, &[resnet, decode]);
    assert_eq!(order.wake_at(), Some(NOW + MS));
    update(&mut order, NOW, &[resnet, Service { postponed: true, ..decode }]);
    assert_eq!(order.wake_at(), Some(NOW + 100 * US));
    update(&mut order, NOW, &[resnet]);
    assert_eq!(order.wake_at(), None, "no other client has a later deadline");
}

#[test]
fn request_that_never_ends_is_urgent_for_twice_its_usual_duration() {
    let (hangs, decode) = (busy(service(1, 2 * MS, MS), NOW), service(2, 0, 60 * MS));
    let mut order = order();
    let bound = NOW + 2 * MS + 190 * US;
    assert_eq!(update(&mut order, bound - 1, &[hangs, decode]), [Nothing, Now]);
    assert_eq!(update(&mut order, bound, &[hangs, decode]), [Nothing, Nothing]);
    // A pause that is shorter than the gap between two requests does not begin another one.
    assert_eq!(update(&mut order, bound + MS, &[idle(hangs, bound + MS), decode]), [Nothing, Nothing]);
    assert_eq!(update(&mut order, bound + MS, &[busy(hangs, bound + MS + 1), decode]), [Nothing, Nothing]);
    let unknown = Service { service_ns: 0, ..hangs };
    assert_eq!(update(&mut super::tests::order(), NOW + 5 * MS - 1, &[unknown, decode]), [Nothing, Now]);
}

#[test]
fn client_beyond_its_request_delays_no_other_client() {
    let (resnet, decode) = (busy(service(1, 2 * MS, MS), NOW), service(2, 0, 60 * MS));
    let beyond = Service { within_request: false, expected_ns: NOW + 3 * MS, ..resnet };
    let mut order = order();
    assert_eq!(update(&mut order, NOW, &[beyond, decode]), [Nothing, Nothing]);
    assert_eq!(
        update(&mut order, NOW, &[Service { within_request: true, ..beyond }, decode]),
        [Nothing, Now]
    );
}

#[test]
fn requests_expected_in_vain_are_ignored_once_their_budget_is_spent() {
    let (lies, decode) = (service(1, 2 * MS, MS), service(2, 0, 60 * MS));
    let mut order = order();
    let believed = |order: &mut DeadlineOrder, from: u64, count: u64| -> u64 {
        let each = |i: u64| {
            let now = from + i * 2 * MS;
            u64::from(update(order, now, &[expects(lies, now + MS), decode])[1] != Nothing)
        };
        (0..count).map(each).sum()
    };
    assert_eq!(believed(&mut order, NOW, 100), 6, "10 ms at 2 ms each, and the one that exceeds it");
    let later = believed(&mut order, NOW + 1000 * MS, 500);
    assert!((5..=20).contains(&later), "{later} of 500 in a second");
}

#[test]
fn service_that_comes_as_expected_keeps_its_budget() {
    let (resnet, decode) = (service(1, 2 * MS, MS), service(2, 0, 60 * MS));
    let mut order = order();
    for i in 0..200 {
        let begins = NOW + i * 10 * MS;
        let next = begins + 10 * MS;
        update(&mut order, begins + 60 * US, &[busy(expects(resnet, next), begins), decode]);
        let ended = idle(expects(resnet, next), begins + MS);
        assert_eq!(update(&mut order, begins + MS, &[ended, decode]), [Nothing, At(next)], "request {i}");
    }
}

fn any_service(id: u64) -> impl Strategy<Value = Service> {
    let times = (0..3u64, 0..3u64, 0..12u64, 0..12u64);
    (times, any::<[bool; 3]>(), 0..2u64).prop_map(
        move |((slo, usual, since, expected), [busy, postponed, within_request], sibling)| Service {
            process: ProcessId(id),
            client: ClientId(id / (1 + sibling)),
            slo_ns: slo * MS,
            service_ns: usual * MS,
            activity: Activity { busy, since_ns: NOW + since * MS },
            expected_ns: if expected == 0 { 0 } else { NOW + expected * MS },
            postponed,
            within_request,
        },
    )
}

proptest! {
    #[test]
    fn no_two_clients_wait_for_each_other(steps in prop::collection::vec((any_service(2), any_service(3), any_service(4)), 1..20)) {
        let mut order = order();
        for (step, (a, b, c)) in steps.into_iter().enumerate() {
            let services = [a, b, c];
            let result = update(&mut order, NOW + step as u64 * MS, &services);
            let ranks = in_order(&services);
            let first = ranks.first_key_value().map(|(rank, _)| rank.client);
            for (service, urgent) in services.iter().zip(&result) {
                prop_assert!(Some(service.client) != first || *urgent == Nothing, "the earliest deadline never waits");
            }
            prop_assert!(result.contains(&Nothing));
        }
    }

    #[test]
    fn silent_services_withdraw_their_urgent_work_within_the_bound(a in any_service(2), b in any_service(3), c in any_service(4)) {
        let mut order = order();
        let services = [a, b, c];
        let mut now = NOW + 12 * MS;
        // The pages stand still, as those of dead processes do. What was reported ends at its own bounds.
        let end = now + 2 * 2 * MS + 5 * MS + 20 * MS;
        while now < end && update(&mut order, now, &services).iter().any(|urgent| *urgent != Nothing) {
            let next = order.wake_at();
            prop_assert!(next.is_some_and(|at| at > now), "nothing would withdraw it");
            now = next.unwrap_or(end);
        }
        prop_assert!(now < end);
    }
}

#[test]
fn work_that_never_ends_is_no_arrival_of_an_expected_request() {
    let (liar, later) = (busy(service(1, MS, MS), 0), service(2, 9 * MS, MS));
    let mut order = order();
    let mut urgent_ms = 0;
    for ms in 0..1_000 {
        let now = NOW + ms * MS;
        // It expects a request in a moment, again and again.
        let urgent = update(&mut order, now, &[expects(liar, (ms / 2 * 2 + 1) * MS + NOW), later])[1];
        urgent_ms += u64::from(urgent != Nothing);
    }
    assert!(urgent_ms < 50, "{urgent_ms} ms of 1 s");
}

#[test]
fn usual_duration_is_believed_up_to_a_bound() {
    let (liar, later) = (busy(service(1, MS, u64::MAX / 4), NOW), service(2, 9 * MS, MS));
    let mut order = order();
    assert_eq!(update(&mut order, NOW, &[liar, later]), [Nothing, Now]);
    assert_eq!(update(&mut order, NOW + 501 * MS, &[liar, later]), [Nothing, Nothing]);
}

#[test]
fn client_that_gives_up_its_rank_for_a_moment_keeps_its_spent_budget() {
    let (hasty, later) = (service(1, 0, MS), service(2, 9 * MS, MS));
    let mut order = order();
    let expecting = |order: &mut DeadlineOrder, n: u64| {
        let now = NOW + n * 10 * MS;
        let urgent = update(order, now, &[expects(hasty, now + MS), later])[1];
        update(order, now + 5 * MS, &[expects(hasty, now + MS), later]);
        // Of unknown duration, it comes last.
        update(order, now + 6 * MS, &[service(1, 0, 0), later]);
        urgent
    };
    let urgent = (0..20).filter(|n| expecting(&mut order, *n) != Nothing).count();
    assert!(urgent <= 7, "{urgent} of 20 expectations in vain");
}

#[test]
fn expectation_that_is_nearly_over_wakes_the_manager_no_sooner_than_a_poll() {
    let (hasty, later) = (service(1, MS, MS), service(2, 9 * MS, MS));
    let policy = DeadlinePolicy::default();
    let mut order = order();
    update(&mut order, NOW, &[expects(hasty, NOW - policy.late_ns + 10), later]);
    assert!(order.wake_at().is_none_or(|at| at >= NOW + policy.postponed_poll_ns));
}
