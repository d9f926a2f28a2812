//! A minimal manager: every process that attaches receives an unlimited grant, and commands on standard input control its channel groups
//! through the descriptors that it sends. It is for manual tests of controls, and for `tests/gpu/groups.py`.
//!
//! ```text
//! watch SOCKET [simulated]
//! list                  prints every process with its groups, their time slices and switch counts
//! slice PID US          sets the time slice of all groups of a process
//! stop PID | start PID  disables or enables the channels of its groups
//! leave                 ends at once and changes nothing
//! ```
//! Each answer is one line of JSON.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a test tool: every error ends it")]

use std::collections::BTreeMap;
use std::io::BufRead;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use serde_json::{Value, json};
use sluice_comm::attach::{AttachPayload, ContextHandles, MAX_LEN};
use sluice_comm::page::{GrantView, PAGE_VERSION, ReportView, UNLIMITED};
use sluice_comm::{
    AttachStatus, Channel, FrameReader, REQUEST_LEN, Request, RequestBody, Response, ResponseBody,
};
use sluice_nvrm::{ControlError, Controls};
use sluice_sys::page::SharedPage;
use sluice_sys::{memfd, socket};

/// The announcement of a process.
#[derive(Default)]
struct Announced {
    contexts: Vec<ContextHandles>,
    controls: Vec<Controls>,
    announcements: u32,
}

type Processes = Arc<Mutex<BTreeMap<i32, Announced>>>;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let simulated = arguments.get(2).is_some_and(|word| word == "simulated");
    let listener = UnixListener::bind(arguments.get(1).expect("usage: watch SOCKET [simulated]")).unwrap();
    let processes = Processes::default();
    let for_connections = processes.clone();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let processes = for_connections.clone();
            thread::spawn(move || serve(stream.unwrap(), &processes, simulated));
        }
    });
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        let processes = processes.lock().unwrap();
        let answer = match words.as_slice() {
            ["list"] => list(&processes),
            ["slice", pid, us] => for_each_group(&processes, pid, |controls, context| {
                controls.set_timeslice(context.client, context.channel_group, us.parse().unwrap())
            }),
            ["stop", pid] => for_each_group(&processes, pid, |controls, context| {
                controls.disable(context.client, context.subdevice, &context.channels)
            }),
            ["start", pid] => for_each_group(&processes, pid, |controls, context| {
                controls.enable(context.client, context.subdevice, &context.channels)
            }),
            ["leave"] => std::process::exit(0),
            _ => json!({ "error": "list, slice PID US, stop PID, start PID, leave" }),
        };
        println!("{answer}");
    }
}

/// Serves one connection of a process.
fn serve(stream: UnixStream, processes: &Processes, simulated: bool) {
    let pid = socket::peer_credentials(stream.as_fd()).unwrap().pid;
    let mut frames = FrameReader::<REQUEST_LEN>::new();
    let mut fds = Vec::new();
    let mut pages = Vec::new();
    while let Ok((read @ 1.., received)) = socket::recv_with_fds(stream.as_fd(), frames.spare()) {
        frames.filled(read);
        fds.extend(received);
        let Some(frame) = frames.next() else { continue };
        let request = Request::decode(&frame).unwrap();
        let mut sent = Vec::new();
        let body = match request.body {
            RequestBody::Attach { channel, .. } => {
                if channel == Channel::Token {
                    record_announcement(processes, pid, std::mem::take(&mut fds), simulated);
                    sent = unlimited_grant(&mut pages);
                }
                ResponseBody::Attach { status: AttachStatus::Ok, page_version: PAGE_VERSION }
            }
            RequestBody::Contexts { .. } => {
                record_announcement(processes, pid, std::mem::take(&mut fds), simulated);
                continue;
            }
            RequestBody::Quota { .. } => ResponseBody::Quota { quota_ms: 1e6 },
            RequestBody::MemLimit => ResponseBody::MemLimit { used: 0, limit: 1 << 50 },
            RequestBody::MemUpdate { .. } => ResponseBody::MemUpdate { granted: true },
            RequestBody::Detach => ResponseBody::Detach,
            RequestBody::OwnProcess { .. } => ResponseBody::OwnProcess { own: true },
            RequestBody::Yield { .. } => continue,
        };
        fds.clear();
        let answer = Response { id: request.id, body }.encode();
        let sent: Vec<_> = sent.iter().map(AsFd::as_fd).collect();
        socket::send_with_fds(stream.as_fd(), &answer, &sent).unwrap();
    }
    processes.lock().unwrap().remove(&pid);
}

/// Records an announcement: the descriptor of the payload, then the descriptors of its contexts.
fn record_announcement(processes: &Processes, pid: i32, fds: Vec<OwnedFd>, simulated: bool) {
    let mut fds = fds.into_iter();
    let payload = memfd::read_sealed(fds.next().unwrap().as_fd(), MAX_LEN).unwrap();
    let payload = AttachPayload::decode(&payload).unwrap();
    let mut processes = processes.lock().unwrap();
    let process = processes.entry(pid).or_default();
    process.contexts = payload.contexts;
    process.controls = fds.map(|fd| Controls::from_descriptor(fd, simulated).unwrap()).collect();
    process.announcements += 1;
}

/// Makes the two shared pages of a process; the grant page has a grant without deadline.
fn unlimited_grant(pages: &mut Vec<SharedPage>) -> Vec<OwnedFd> {
    let (grant, writable) = SharedPage::create("watch-grant").unwrap();
    GrantView::new(grant.words()).init();
    GrantView::new(grant.words()).open(UNLIMITED, UNLIMITED, 1);
    SharedPage::seal_future_write(&writable).unwrap();
    let (report, report_fd) = SharedPage::create("watch-report").unwrap();
    ReportView::new(report.words()).init();
    let fds = vec![SharedPage::reopen_read_only(&writable).unwrap(), report_fd];
    pages.extend([grant, report]);
    fds
}

fn list(processes: &BTreeMap<i32, Announced>) -> Value {
    let processes = processes.iter().map(|(pid, process)| {
        let groups = process.contexts.iter().map(|context| {
            let controls = &process.controls[context.descriptor as usize];
            let ContextHandles { client, subdevice, channel_group, .. } = *context;
            let stats = controls.ctxsw_stats(client, subdevice, channel_group);
            json!({
                "client": format!("{client:#x}"),
                "subdevice": format!("{subdevice:#x}"),
                "group": format!("{channel_group:#x}"),
                "channels": context.channels.iter().map(|c| format!("{c:#x}")).collect::<Vec<_>>(),
                "id": value(controls.group_id(client, channel_group)),
                "timeslice_us": value(controls.timeslice(client, channel_group)),
                "saves": value(stats.as_ref().map(|stats| stats.saves)),
                "restores": value(stats.as_ref().map(|stats| stats.restores)),
                "wfi_cta_cilp": value(stats.as_ref().map(|stats| [stats.wfi, stats.cta, stats.cilp])),
            })
        });
        json!({ "pid": pid, "announcements": process.announcements, "groups": groups.collect::<Vec<_>>() })
    });
    json!({ "tenants": processes.collect::<Vec<_>>() })
}

fn value<T: Into<Value>, E: ToString>(result: Result<T, E>) -> Value {
    result.map_or_else(|error| json!(error.to_string()), Into::into)
}

/// Makes a control on every group of a process. Returns how long each took.
fn for_each_group(
    processes: &BTreeMap<i32, Announced>,
    pid: &str,
    control: impl Fn(&Controls, &ContextHandles) -> Result<(), ControlError>,
) -> Value {
    let Some(process) = pid.parse().ok().and_then(|pid: i32| processes.get(&pid)) else {
        return json!({ "error": format!("no process {pid}") });
    };
    let made = process.contexts.iter().map(|context| {
        let began = Instant::now();
        let result = control(&process.controls[context.descriptor as usize], context);
        let took_us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        json!({ "took_us": took_us, "error": result.err().map(|error| error.to_string()) })
    });
    json!({ "made": made.collect::<Vec<_>>() })
}
