//! The benefit test: its samples and their effect.

use super::*;

#[test]
fn hold_kernels_end_without_benefit_and_return_with_it() {
    let mut server = Server::new();
    (0..60).for_each(|_| _ = server.request(60 * US, 1300 * US, 1000 * US));
    assert_eq!(server.request(60 * US, 1300 * US, 1000 * US), None);
    // Contenders come and go all the time, which does not start another test.
    server.state.set_contenders(0);
    server.state.set_contenders(2);
    assert_eq!(server.request(60 * US, 1300 * US, 1000 * US), None);
    (0..400).for_each(|_| _ = server.request(60 * US, 900 * US, 1000 * US));
    assert!(server.request(60 * US, 900 * US, 1000 * US).is_some());
}

#[test]
fn launch_without_a_copy_gets_a_hold_kernel_only_with_proven_benefit() {
    for (held, kept) in [(1000 * US, false), (900 * US, true)] {
        let mut server = Server::new();
        for _ in 0..60 {
            let began = server.now;
            let hold = server.begin(Trigger::Launch, 0);
            server.launch();
            server.now = began + if hold.is_ok() { held } else { 1000 * US };
            server.finish();
            server.now += 8 * MS;
        }
        assert_eq!(server.begin(Trigger::Launch, 0).is_ok(), kept);
    }
}

#[test]
fn refused_hold_kernel_does_not_count_as_sample() {
    let mut server = Server::new();
    for at in 0..60 {
        let began = server.now;
        if let Ok(hold) = server.begin(Trigger::Copy, 0) {
            server.state.launch_failed(hold.ticket);
            assert!(!server.state.is_active());
        }
        server.launch();
        server.now = began + if at % 2 == 0 { 2 * MS } else { MS };
        server.finish();
        server.now += 8 * MS;
    }
    assert!(server.begin(Trigger::Copy, 0).is_ok(), "refused hold kernels were not judged");
}

#[test]
fn only_requests_with_observed_ends_are_samples() {
    for seen in [true, false] {
        let controller = HoldKernels::new(Settings::default());
        controller.set_contenders(1);
        controller.with(|state| state.launch_submitted(0));
        controller.work_finished(1, || 1);
        let mut now = 0;
        let held = (0..100)
            .filter(|_| {
                now += 10 * MS;
                let held = controller.with(|state| state.begin_request(Trigger::Copy, now, 0)).is_ok();
                controller.with(|state| state.launch_submitted(now));
                now += if held { 2 * MS } else { MS };
                if seen {
                    controller.host_wait_ended(now, false);
                }
                controller.work_finished(now, || 1);
                held
            })
            .count();
        assert!(if seen { held < 50 } else { held == 100 }, "{held} had a hold kernel");
    }
}
