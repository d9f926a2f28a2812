//! The plots of `sluice sim run`: how long requests took under each policy, and which client had the GPU when; of a sweep, what the others got
//! against how long the requests took.

use sluice_policy_sim::Report;
use sluice_policy_sim::report::ClientReport;
use std::fmt::Write as _;

const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999"];
const WIDTH: f64 = 900.0;
const LEFT: f64 = 140.0;
const CDF_HEIGHT: f64 = 260.0;
const ROW: f64 = 26.0;
/// Points of a distribution.
const POINTS: u32 = 200;
/// The part of the timeline that is drawn: this long from the middle of what is recorded.
const TIMELINE_NS: u64 = 200_000_000;

/// Draws the reports of one scenario as SVG.
pub(super) fn draw(reports: &[Report]) -> String {
    let mut svg = head(CDF_HEIGHT + 110.0 + ROW * reports.len() as f64);
    distribution(&mut svg, reports);
    timeline(&mut svg, reports, CDF_HEIGHT + 80.0);
    svg + "</svg>\n"
}

/// Draws the trade-off curves of a sweep as SVG: one for each policy, with a point for each request. `runs`: the reports of each.
pub(super) fn draw_sweep(runs: &[&[Report]]) -> String {
    let policies = runs.iter().map(|reports| reports.len()).min().unwrap_or(0);
    let point = |report: &Report| {
        // Without a finished request there is no latency.
        let client = drawn(report).filter(|client| client.p99_ms > 0.0)?;
        let others = report.clients.iter().filter(|other| other.name != client.name);
        Some((others.map(|other| other.share).sum::<f64>().min(1.0), client.p99_ms.log10()))
    };
    let curve = |policy: usize| runs.iter().filter_map(move |reports| point(&reports[policy]));
    let logs: Vec<f64> = (0..policies).flat_map(curve).map(|(_, log)| log).collect();
    let from = logs.iter().copied().fold(f64::INFINITY, f64::min).floor();
    let to = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max).ceil().max(from + 1.0);
    let x = |share: f64| LEFT + share * (WIDTH - LEFT - 20.0);
    let y = |log: f64| 30.0 + (to - log) / (to - from) * CDF_HEIGHT;
    let mut svg = head(CDF_HEIGHT + 60.0);
    let Some(client) = runs.first().and_then(|reports| drawn(reports.first()?)) else {
        return svg + "</svg>\n";
    };
    let title = format!("p99 of {}, ms, against the share of the GPU that the others got", client.name);
    text(&mut svg, (LEFT, 18.0), "black", &title);
    for decade in decades(from, to) {
        let at = y(decade);
        grid_line(&mut svg, (LEFT, at), (x(1.0), at));
        text(&mut svg, (LEFT - 40.0, at + 4.0), "black", &format!("{}", 10f64.powf(decade)));
    }
    for share in [0.0, 0.5, 1.0] {
        text(&mut svg, (x(share) - 8.0, y(from) + 16.0), "black", &format!("{share}"));
    }
    for (policy, report) in runs.first().copied().into_iter().flatten().enumerate() {
        let points: String =
            curve(policy).map(|(share, log)| format!("{:.1},{:.1} ", x(share), y(log))).collect();
        polyline(&mut svg, "curve", colour(policy), &points);
        text(&mut svg, (4.0, 44.0 + 18.0 * policy as f64), colour(policy), report.policy);
    }
    svg + "</svg>\n"
}

fn head(height: f64) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    )
}

fn colour(index: usize) -> &'static str {
    COLOURS[index % COLOURS.len()]
}

fn text(svg: &mut String, (x, y): (f64, f64), colour: &str, words: &str) {
    let words = words.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" fill=\"{colour}\">{words}</text>");
}

/// The powers of ten of an axis, as logarithms.
fn decades(from: f64, to: f64) -> impl Iterator<Item = f64> {
    std::iter::successors(Some(from), |decade| Some(decade + 1.0)).take_while(move |decade| *decade <= to)
}

fn grid_line(svg: &mut String, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
    let _ =
        writeln!(svg, "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"#ddd\"/>");
}

fn polyline(svg: &mut String, class: &str, colour: &str, points: &str) {
    let _ = writeln!(
        svg,
        "<polyline class=\"{class}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\" points=\"{points}\"/>"
    );
}

/// The client whose latencies are drawn: the latency-critical one, or the first.
fn drawn(report: &Report) -> Option<&ClientReport> {
    let critical = report.clients.iter().find(|client| client.class == "latency-critical");
    critical.or(report.clients.first())
}

fn distribution(svg: &mut String, reports: &[Report]) {
    let clients: Vec<&ClientReport> = reports.iter().filter_map(drawn).collect();
    let Some(name) = clients.first().map(|client| &client.name) else { return };
    let logs = |ns: u64| (ns.max(1_000) as f64 / 1e6).log10();
    let all = || clients.iter().flat_map(|client| [client.quantile_ns(0.0), client.quantile_ns(0.999)]);
    let from = all().map(logs).fold(f64::INFINITY, f64::min).floor();
    let to = all().map(logs).fold(f64::NEG_INFINITY, f64::max).ceil().max(from + 1.0);
    let x = |log: f64| LEFT + (log - from) / (to - from) * (WIDTH - LEFT - 20.0);
    let y = |part: f64| 30.0 + (1.0 - part) * CDF_HEIGHT;
    text(svg, (LEFT, 18.0), "black", &format!("Part of the requests of {name} that took at most so many ms"));
    for decade in decades(from, to) {
        let at = x(decade);
        grid_line(svg, (at, y(0.0)), (at, y(1.0)));
        text(svg, (at - 10.0, y(0.0) + 16.0), "black", &format!("{}", 10f64.powf(decade)));
    }
    for part in [0.0, 0.5, 0.99] {
        text(svg, (LEFT - 34.0, y(part) + 4.0), "black", &format!("{part}"));
    }
    for (index, (report, client)) in reports.iter().zip(&clients).enumerate() {
        let point = |step: u32| {
            let part = f64::from(step) / f64::from(POINTS);
            let at = x(logs(client.quantile_ns(part)).clamp(from, to));
            format!("{at:.1},{:.1} ", y(part))
        };
        let points: String = (0..=POINTS).map(point).collect();
        polyline(svg, "cdf", colour(index), &points);
        text(svg, (4.0, 44.0 + 18.0 * index as f64), colour(index), report.policy);
    }
}

/// One row for each policy: the client that had the GPU.
fn timeline(svg: &mut String, reports: &[Report], top: f64) {
    let Some(recorded) =
        reports.iter().filter_map(|report| report.timeline.last()).map(|last| last.to_ns).min()
    else {
        return;
    };
    let from = (recorded / 2).min(recorded.saturating_sub(TIMELINE_NS));
    let x = |at: u64| {
        LEFT + at.saturating_sub(from).min(TIMELINE_NS) as f64 / TIMELINE_NS as f64 * (WIDTH - LEFT - 20.0)
    };
    let mut at = LEFT + 320.0;
    text(
        svg,
        (LEFT, top - 10.0),
        "black",
        &format!("Who had the GPU, {} ms from {:.2} s on:", TIMELINE_NS / 1_000_000, from as f64 / 1e9),
    );
    for (index, client) in reports[0].clients.iter().enumerate().take(COLOURS.len()) {
        text(svg, (at, top - 10.0), colour(index), &client.name);
        at += 8.0 * client.name.len() as f64 + 16.0;
    }
    for (row, report) in reports.iter().enumerate() {
        let y = top + ROW * row as f64;
        text(svg, (4.0, y + 15.0), "black", report.policy);
        let shown = report.timeline.iter().filter(|interval| interval.to_ns > from);
        for interval in shown.take_while(|interval| interval.from_ns < from + TIMELINE_NS) {
            let (begin, end) = (x(interval.from_ns), x(interval.to_ns));
            let _ = writeln!(
                svg,
                "<rect x=\"{begin:.2}\" y=\"{y:.1}\" width=\"{:.2}\" height=\"18\" fill=\"{}\"/>",
                (end - begin).max(0.2),
                colour(interval.client)
            );
        }
    }
}
