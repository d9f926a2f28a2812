//! The hook's configuration from environment variables. It contains no limits: limits come from the manager.
//!
//! Parsing takes a look-up function instead of the environment and reports every mistake. A setting with a mistake keeps
//! its default, because a library in another program's process cannot refuse to start.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use sluice_comm::HAND_OFF_STEPS;

use crate::hold_kernel;
use crate::period_predictor::Quantile;

/// The default directory of the unix sockets, one `<gpu-uuid>.sock` for each GPU.
pub const DEFAULT_SOCKET_DIR: &str = "/run/sluice";

/// The hook's configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// `SLUICE_DISABLE`: the kill switch; any value but empty or `0` disables the hook. See [`setting`].
    pub disabled: bool,
    /// Where the managers listen.
    pub managers: Managers,
    /// `SLUICE_CLIENT`, else `POD_NAME`, else the host name: the name that the process reports. The manager identifies the client itself.
    pub client: Option<String>,
    /// `SLUICE_ON_MANAGER_LOSS`: `open` (default) or `closed`, until the manager's grant page states otherwise.
    pub fail_closed: bool,
    /// `SLUICE_PREDICTOR`: `p90` (default) or `max`.
    pub quantile: Quantile,
    /// `SLUICE_LOG`: file to append to; nothing is logged by default.
    pub log: Option<PathBuf>,
    /// [`HAND_OFF_STEPS`]: where steps of hand-offs are recorded; nowhere by default.
    pub hand_off_steps: Option<PathBuf>,
    /// `SLUICE_IDLE_US`: idle time after which the token is returned, 1 to 10,000,000 µs, default 500.
    pub idle_us: u64,
    /// `SLUICE_BUSY_POLL_US`: how long a thread polls before the end of a grant, 0 to 200 µs; without it as
    /// [`around_ns`](crate::deadline_polling::around_ns) decides.
    pub busy_poll_us: Option<u64>,
    /// `SLUICE_HINTS`: `auto` (default), `api` (only hold kernels that the program requests) or `off`.
    pub hold_kernels: hold_kernel::Settings,
}

/// Where the managers listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Managers {
    /// `SLUICE_SOCKET`: one unix socket, for the single visible GPU.
    Socket(PathBuf),
    /// `SLUICE_SOCKET_DIR`: a directory with one `<gpu-uuid>.sock` for each GPU.
    Directory {
        /// The directory.
        path: PathBuf,
        /// Whether it was configured. If not, a GPU without a socket is not managed.
        explicit: bool,
    },
    /// `POD_MANAGER_IP`, `POD_MANAGER_PORT`: Gemini's managers on TCP, by device ordinal.
    Tcp(Vec<(String, u16)>),
}

/// A setting with an invalid value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{variable}={value:?}: expected {expected}, used the default")]
pub struct Mistake {
    /// The variable.
    pub variable: &'static str,
    /// Its value.
    pub value: String,
    /// The values that are valid.
    pub expected: &'static str,
}

/// The name of the file beside the library that has the settings of the node.
pub const NODE_SETTINGS_FILE: &str = "node.env";

/// Variables that switch the limits off, or that lead to another manager. On a node with a [`NODE_SETTINGS_FILE`] a program cannot set them.
const OF_THE_NODE: [&str; 5] =
    ["SLUICE_DISABLE", "SLUICE_SOCKET", "SLUICE_SOCKET_DIR", "POD_MANAGER_IP", "POD_MANAGER_PORT"];

/// The value of a variable. `node` is the text of the node's settings, lines of `NAME=VALUE`, which alone count for the variables of the
/// node; `None`: there is no such file, as on a machine without a node agent.
pub fn setting(
    node: Option<&str>,
    name: &str,
    environment: impl Fn(&str) -> Option<String>,
) -> Option<String> {
    match node {
        Some(text) if OF_THE_NODE.contains(&name) => {
            let value = |line: &str| Some(line.strip_prefix(name)?.strip_prefix('=')?.trim().to_owned());
            text.lines().find_map(value)
        }
        _ => environment(name),
    }
}

impl Config {
    /// Reads all settings; `get` returns the value of a variable.
    pub fn read(get: impl Fn(&str) -> Option<String>) -> (Self, Vec<Mistake>) {
        let mut reader =
            Reader { get: |name: &str| get(name).filter(|value| !value.is_empty()), mistakes: Vec::new() };
        let config = Self {
            disabled: reader.text("SLUICE_DISABLE").is_some_and(|value| value != "0"),
            managers: reader.managers(),
            client: reader.text("SLUICE_CLIENT").or_else(|| reader.text("POD_NAME")),
            fail_closed: reader.choice(
                "SLUICE_ON_MANAGER_LOSS",
                &[("open", false), ("closed", true)],
                "open or closed",
            ),
            quantile: reader.choice(
                "SLUICE_PREDICTOR",
                &[("p90", Quantile::P90), ("max", Quantile::Maximum)],
                "p90 or max",
            ),
            log: reader.text("SLUICE_LOG").map(PathBuf::from),
            hand_off_steps: reader.text(HAND_OFF_STEPS).map(PathBuf::from),
            idle_us: reader
                .number("SLUICE_IDLE_US", 1..=10_000_000, "microseconds from 1 to 10000000")
                .unwrap_or(500),
            busy_poll_us: reader.number("SLUICE_BUSY_POLL_US", 0..=200, "microseconds from 0 to 200"),
            hold_kernels: reader.hints(),
        };
        (config, reader.mistakes)
    }
}

struct Reader<F> {
    get: F,
    mistakes: Vec<Mistake>,
}

impl<F: Fn(&str) -> Option<String>> Reader<F> {
    fn text(&self, variable: &'static str) -> Option<String> {
        (self.get)(variable)
    }

    fn mistake(&mut self, variable: &'static str, value: String, expected: &'static str) {
        self.mistakes.push(Mistake { variable, value, expected });
    }

    /// The value that belongs to the given word; the first value if the variable is unset or has another word.
    fn choice<T: Copy>(&mut self, variable: &'static str, words: &[(&str, T)], expected: &'static str) -> T {
        let value = self.text(variable);
        let chosen = words.iter().find(|(word, _)| value.as_deref() == Some(*word));
        if let (None, Some(value)) = (chosen, value) {
            self.mistake(variable, value, expected);
        }
        chosen.unwrap_or(&words[0]).1
    }

    fn number(
        &mut self,
        variable: &'static str,
        range: RangeInclusive<u64>,
        expected: &'static str,
    ) -> Option<u64> {
        let value = self.text(variable)?;
        let number = value.parse().ok().filter(|number| range.contains(number));
        if number.is_none() {
            self.mistake(variable, value, expected);
        }
        number
    }

    fn hints(&mut self) -> hold_kernel::Settings {
        let words = [("auto", (true, true)), ("api", (false, true)), ("off", (false, false))];
        // A launch that returns when its kernel is done would wait for the hold kernel itself.
        let (automatic, by_hint) = match self.text("CUDA_LAUNCH_BLOCKING").is_some_and(|value| value != "0") {
            true => (false, false),
            false => self.choice("SLUICE_HINTS", &words, "auto, api or off"),
        };
        hold_kernel::Settings {
            automatic,
            by_hint,
            whole_requests: automatic,
            ..hold_kernel::Settings::default()
        }
    }

    fn managers(&mut self) -> Managers {
        if let Some(path) = self.text("SLUICE_SOCKET") {
            return Managers::Socket(path.into());
        }
        if let Some(path) = self.text("SLUICE_SOCKET_DIR") {
            return Managers::Directory { path: path.into(), explicit: true };
        }
        match self.tcp() {
            Some(managers) => Managers::Tcp(managers),
            None => Managers::Directory { path: DEFAULT_SOCKET_DIR.into(), explicit: false },
        }
    }

    /// One manager for each port of the list, or for each address if there are more addresses.
    fn tcp(&mut self) -> Option<Vec<(String, u16)>> {
        const DEFAULT_PORT: u16 = 50052;
        let (ips, ports) = (self.text("POD_MANAGER_IP"), self.text("POD_MANAGER_PORT"));
        if ips.is_none() && ports.is_none() {
            return None;
        }
        let ips: Vec<String> = list(ips.as_deref().unwrap_or("127.0.0.1")).map(str::to_owned).collect();
        if ips.iter().any(|ip| ip.parse::<std::net::Ipv4Addr>().is_err()) {
            self.mistake("POD_MANAGER_IP", ips.join(","), "IPv4 addresses separated by commas");
            return None;
        }
        let mut numbers = Vec::new();
        for port in list(ports.as_deref().unwrap_or_default()) {
            match port.parse() {
                Ok(number @ 1..) => numbers.push(number),
                _ => {
                    self.mistake(
                        "POD_MANAGER_PORT",
                        port.to_owned(),
                        "ports from 1 to 65535 separated by commas",
                    );
                    return None;
                }
            }
        }
        let ordinals = ips.len().max(numbers.len());
        let last_ip = ips.last().cloned().unwrap_or_default();
        let last_port = numbers.last().copied().unwrap_or(DEFAULT_PORT);
        Some(
            (0..ordinals)
                .map(|at| {
                    let ip = ips.get(at).cloned().unwrap_or_else(|| last_ip.clone());
                    (ip, numbers.get(at).copied().unwrap_or(last_port))
                })
                .collect(),
        )
    }
}

fn list(value: &str) -> impl Iterator<Item = &str> {
    value.split(',').map(str::trim).filter(|part| !part.is_empty())
}

#[cfg(test)]
mod tests;
