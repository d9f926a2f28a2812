use super::*;

fn read(settings: &[(&str, &str)]) -> (Config, Vec<Mistake>) {
    Config::read(|name| settings.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()))
}

#[test]
fn default_is_the_socket_directory_and_open_on_manager_loss() {
    let (config, mistakes) = read(&[]);
    assert!(mistakes.is_empty());
    assert!(!config.disabled && !config.fail_closed);
    assert_eq!(config.managers, Managers::Directory { path: DEFAULT_SOCKET_DIR.into(), explicit: false });
    assert_eq!((config.idle_us, config.quantile), (500, Quantile::P90));
}

#[test]
fn every_setting_is_read() {
    let (config, mistakes) = read(&[
        ("SLUICE_SOCKET", "/s"),
        ("SLUICE_CLIENT", "be-a"),
        ("POD_NAME", "other"),
        ("SLUICE_ON_MANAGER_LOSS", "closed"),
        ("SLUICE_DISABLE", "1"),
        ("SLUICE_PREDICTOR", "max"),
        ("SLUICE_LOG", "/l"),
        ("SLUICE_IDLE_US", "2000"),
        ("SLUICE_BUSY_POLL_US", "0"),
        ("SLUICE_HAND_OFF_STEPS", "/steps"),
        ("SLUICE_HINTS", "api"),
    ]);
    assert!(mistakes.is_empty());
    let expected = Config {
        disabled: true,
        managers: Managers::Socket("/s".into()),
        client: Some("be-a".into()),
        fail_closed: true,
        quantile: Quantile::Maximum,
        log: Some("/l".into()),
        hand_off_steps: Some("/steps".into()),
        idle_us: 2000,
        busy_poll_us: Some(0),
        hold_kernels: hold_kernel::Settings {
            automatic: false,
            whole_requests: false,
            ..hold_kernel::Settings::default()
        },
    };
    assert_eq!(config, expected);
}

#[test]
fn all_mistakes_are_reported_and_leave_the_defaults() {
    let (config, mistakes) = read(&[
        ("SLUICE_ON_MANAGER_LOSS", "ajar"),
        ("SLUICE_PREDICTOR", "p99"),
        ("SLUICE_IDLE_US", "-1"),
        ("SLUICE_HINTS", "on"),
        ("POD_MANAGER_PORT", "50051,x"),
    ]);
    let names: Vec<_> = mistakes.iter().map(|mistake| mistake.variable).collect();
    assert_eq!(
        names,
        ["POD_MANAGER_PORT", "SLUICE_ON_MANAGER_LOSS", "SLUICE_PREDICTOR", "SLUICE_IDLE_US", "SLUICE_HINTS"]
    );
    assert_eq!(config, read(&[]).0);
    assert!(mistakes[1].to_string().contains("SLUICE_ON_MANAGER_LOSS=\"ajar\": expected open or closed"));
}

#[test]
fn gemini_managers_are_listed_by_device() {
    let managers = |settings: &[(&str, &str)]| read(settings).0.managers;
    assert_eq!(
        managers(&[("POD_MANAGER_PORT", "50051,50052")]),
        Managers::Tcp(vec![("127.0.0.1".into(), 50051), ("127.0.0.1".into(), 50052)])
    );
    assert_eq!(managers(&[("POD_MANAGER_IP", "10.0.0.7")]), Managers::Tcp(vec![("10.0.0.7".into(), 50052)]));
}

#[test]
fn hold_kernels_are_off_where_launches_wait_for_their_kernels() {
    let hints = |settings: &[(&str, &str)]| read(settings).0.hold_kernels;
    assert!(hints(&[]).automatic && hints(&[("CUDA_LAUNCH_BLOCKING", "0")]).automatic);
    let blocking = hints(&[("CUDA_LAUNCH_BLOCKING", "1"), ("SLUICE_HINTS", "auto")]);
    assert!(!blocking.automatic && !blocking.by_hint);
    let off = hints(&[("SLUICE_HINTS", "off")]);
    assert!(!off.automatic && !off.by_hint);
}

#[test]
fn kill_switch_is_off_for_empty_and_zero() {
    assert!(!read(&[("SLUICE_DISABLE", "0")]).0.disabled);
    assert!(!read(&[("SLUICE_DISABLE", "")]).0.disabled);
    assert!(read(&[("SLUICE_DISABLE", "yes")]).0.disabled);
}

#[test]
fn with_settings_of_the_node_the_environment_neither_disables_nor_redirects() {
    let environment = |name: &str| match name {
        "SLUICE_DISABLE" => Some("1".to_owned()),
        "SLUICE_SOCKET" => Some("/nowhere".to_owned()),
        "SLUICE_HINTS" => Some("off".to_owned()),
        _ => None,
    };
    let config = |node: Option<&str>| Config::read(|name| setting(node, name, environment)).0;
    assert!(config(None).disabled);
    let on_node = config(Some("# A comment\nSLUICE_SOCKET_DIR=/run/other\n"));
    assert!(!on_node.disabled);
    assert_eq!(on_node.managers, Managers::Directory { path: "/run/other".into(), explicit: true });
    assert!(!on_node.hold_kernels.automatic, "settings without a limit are the program's");
    let usual = Managers::Directory { path: DEFAULT_SOCKET_DIR.into(), explicit: false };
    assert_eq!(config(Some("")).managers, usual);
    assert!(config(Some("SLUICE_DISABLE=1")).disabled);
}
