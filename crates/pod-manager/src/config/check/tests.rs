use super::*;

#[test]
fn defaults_are_valid() {
    assert_eq!(Config::new("/run/sluice/gpu.sock", "/etc/sluice/resources").check(), Ok(()));
}

#[test]
fn attaches_wait_less_long_than_hooks() {
    let holding = |hold| {
        let mut config = Config::for_agent("/run/sluice/gpu.sock", "/var/lib/sluice/gpu.sock", "GPU-1");
        if let ClientSource::Agent(agent) = &mut config.clients {
            agent.pending_time = hold;
        }
        config.check().map_err(|mistakes| mistakes.to_string())
    };
    assert_eq!(holding(Duration::from_millis(4999)), Ok(()));
    let words = "hold is 5s, expected less than 5 s, after which a hook gives up";
    assert_eq!(holding(HOOK_TIMEOUT), Err(words.to_owned()));
}

#[test]
fn probes_have_another_address_than_metrics_unless_the_system_picks_the_port() {
    let check = |metrics: u16, health: u16| {
        let address = |port| Some(([127, 0, 0, 1], port).into());
        let (metrics, health) = (address(metrics), address(health));
        Config { metrics, health, ..Config::new("/run/sluice/gpu.sock", "/etc/sluice/resources") }.check()
    };
    let words = "health is 127.0.0.1:9400, expected another address than that of metrics";
    assert_eq!(check(9400, 9400).map_err(|mistakes| mistakes.to_string()), Err(words.to_owned()));
    assert_eq!(check(9400, 9401), Ok(()));
    assert_eq!(check(0, 0), Ok(()));
}

#[test]
fn all_mistakes_are_reported_at_once() {
    let config = Config {
        tcp: Some(([192, 168, 0, 1], 50051).into()),
        min_quota: Duration::from_millis(200),
        capacity: 0,
        socket_mode: 0o1000,
        linger: Duration::from_secs(1),
        ..Config::new("", "")
    };
    let mistakes = config.check().unwrap_err();
    let fields: Vec<&str> = mistakes.iter().map(|mistake| mistake.field.as_str()).collect();
    let expected =
        ["socket", "socket_mode", "tcp", "resource_file", "min_quota", "base_quota", "linger", "capacity"];
    assert_eq!(fields, expected);
}

#[test]
fn trace_socket_is_not_where_tenants_reach_it() {
    let check = |trace: &str| {
        Config { trace: Some(trace.into()), ..Config::new("/run/sluice/gpu.sock", "/etc/sluice/resources") }
            .check()
            .map_err(|mistakes| mistakes.to_string())
    };
    assert_eq!(check("/var/lib/sluice/control/gpu.trace"), Ok(()));
    let words = "trace is /run/sluice/gpu.trace, expected another directory than the socket's";
    assert_eq!(check("/run/sluice/gpu.trace"), Err(words.to_owned()));
}
