//! `sluice top` against a pod-manager on the simulated GPU.

use std::process::{Command, Stdio};
use std::sync::OnceLock;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sluice_test_bed::{Artifacts, Tenant, TestBed, TestBedOptions};
use sluice_test_programs::Layout;

use crate::terminal::Terminal;

const SLUICE: &str = env!("CARGO_BIN_EXE_sluice");

/// Two clients, of which one has a program.
const CLIENTS: &str = "
clients:
  - { name: busy, request: 0.5, limit: 0.8, memory: 8Gi }
  - { name: idle, request: 0.25, memory: 1Gi }
";

fn artifacts() -> Artifacts {
    static BUILT: OnceLock<()> = OnceLock::new();
    BUILT.get_or_init(|| Layout::of_this_test().build(&["sluice-hook", "sluice-sim-cuda"]));
    Artifacts::beside(SLUICE.as_ref(), true).unwrap()
}

fn bed(clients: &str) -> TestBed {
    let options =
        TestBedOptions { simulated: true, resource_file: clients.to_owned(), ..TestBedOptions::default() };
    TestBed::start(artifacts(), options, || Ok(())).unwrap()
}

fn view(address: &str, rows: u16, cols: u16) -> Terminal {
    Terminal::start(SLUICE, &["top", "--metrics", address, "--interval", "100ms"], rows, cols)
}

/// The cells of the line that begins with this word.
fn cells<'a>(lines: &'a [String], name: &str) -> Vec<&'a str> {
    let line = lines.iter().find(|line| line.split_whitespace().next() == Some(name));
    let cells = line.map_or("", |line| line.as_str()).split("  ").map(str::trim);
    cells.filter(|cell| !cell.is_empty()).collect()
}

/// The share of GPU time that the line of the client shows.
fn got(lines: &[String], client: &str) -> f64 {
    cells(lines, client).get(4).and_then(|cell| cell.parse().ok()).unwrap_or(0.0)
}

#[test]
fn live_view_shows_what_each_client_asked_for_and_got_and_q_restores_the_terminal() {
    let bed = bed(CLIENTS);
    let tenant = Tenant::start(&bed, "busy", "busy", ["be", "--memory", "64Mi"]).unwrap();
    let address = bed.metrics_address().to_string();
    let mut terminal = view(&address, 24, 120);
    let lines = terminal.until("the share of the client", |lines| got(lines, "busy") > 0.1);
    assert_eq!(lines[0], "sluice top   1 GPU, 2 clients, 0 waiting");
    let headings = "POD     PRIORITY  ASKED  LIMIT  GOT    MEMORY   MEMORY LIMIT  WAIT P50";
    assert!(
        lines[1].split_whitespace().eq(format!("{headings}  WAIT P99  PROCESSES").split_whitespace()),
        "{lines:#?}"
    );
    assert!(lines[2].starts_with(&address), "{lines:#?}");
    let busy = cells(&lines, "busy");
    assert_eq!((busy[2], busy[3]), ("0.500", "0.800"), "{lines:#?}");
    assert_eq!((busy[6], busy.last()), ("8.0 GiB", Some(&"1")), "{lines:#?}");
    let idle = cells(&lines, "idle");
    assert_eq!((idle[2], idle[3], idle[4]), ("0.250", "1.000", "0.000"), "{lines:#?}");
    assert!(lines[23].starts_with("q: quit"), "{lines:#?}");
    assert!(!terminal.is_restored());
    terminal.press("q");
    assert!(terminal.wait().success());
    assert!(terminal.is_restored());
    drop(tenant);
}

#[test]
fn view_follows_the_size_of_the_terminal_down_to_20_columns_and_5_lines() {
    let many: String =
        (0..30).map(|at| format!("  - {{ name: c{at:02}, request: 0.01, memory: 64Mi }}\n")).collect();
    let bed = bed(&format!("clients:\n{many}"));
    let mut terminal = view(&bed.metrics_address().to_string(), 24, 100);
    terminal.until("the 20th client", |lines| !cells(lines, "c19").is_empty());
    terminal.resize(5, 20);
    let small = terminal.until("the small view", |lines| lines.len() == 5 && lines[4].starts_with("q: quit"));
    assert!(small[0].starts_with("sluice top   1 GPU") && small[1].starts_with("POD"), "{small:?}");
    // The key End.
    terminal.press("\x1b[F");
    terminal
        .until("the last client", |lines| lines[3].trim() == "c29" || lines[3].trim().starts_with("c29 "));
    terminal.resize(24, 100);
    terminal.until("the last clients", |lines| {
        !cells(lines, "c29").is_empty() && !cells(lines, "c10").is_empty()
    });
    terminal.press("\x1b");
    assert!(terminal.wait().success());
    assert!(terminal.is_restored());
}

#[test]
fn manager_that_ends_is_reported_beside_the_latest_page_and_sigterm_restores_the_terminal() {
    let mut bed = bed(CLIENTS);
    let address = bed.metrics_address().to_string();
    let mut terminal = view(&address, 24, 100);
    terminal.until("the clients", |lines| !cells(lines, "busy").is_empty());
    bed.kill_manager();
    let lines = terminal.until("the error", |lines| lines[23].starts_with("cannot read http://"));
    assert!(!cells(&lines, "busy").is_empty(), "{lines:#?}");
    kill(Pid::from_raw(terminal.pid()), Signal::SIGTERM).unwrap();
    assert!(terminal.wait().success());
    assert!(terminal.is_restored());
}

#[test]
fn once_prints_text_or_json_and_a_closed_pipe_is_no_error() {
    let bed = bed(CLIENTS);
    let address = bed.metrics_address().to_string();
    let run = |arguments: &[&str]| {
        let output =
            Command::new(SLUICE).args(["top", "--metrics", &address]).args(arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let text = run(&["--once"]);
    assert!(text.starts_with("POD "), "{text}");
    // The output is no terminal.
    assert_eq!(run(&[]), text);
    let json: serde_json::Value = serde_json::from_str(&run(&["-o", "json"])).unwrap();
    let busy = &json["gpus"][0]["clients"][0];
    assert_eq!((busy["name"].as_str(), busy["asked_share"].as_f64()), (Some("busy"), Some(0.5)));
    assert_eq!((busy["limit_share"].as_f64(), busy["got_share"].as_f64()), (Some(0.8), Some(0.0)));

    let mut command = Command::new(SLUICE);
    command.args(["top", "--once", "--metrics", &address]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn address_without_a_manager_is_named_in_the_error() {
    let address = sluice_test_bed::http::free_address().unwrap().to_string();
    let output = Command::new(SLUICE).args(["top", "--once", "--metrics", &address]).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        error.contains(&format!("cannot read http://{address}/metrics")) && !output.status.success(),
        "{error}"
    );
}
