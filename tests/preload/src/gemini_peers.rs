//! Peers that speak only Gemini's protocol over TCP: a client for the pod-manager, and a manager for the hook.

use crate::gemini_frames::{self, Received};
use crate::waiting::{TIMEOUT, eventually};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// A Gemini client: one connection, one request at a time.
pub struct GeminiClient {
    stream: TcpStream,
    name: String,
    next_id: i32,
}

impl GeminiClient {
    /// Connects to a manager.
    ///
    /// # Panics
    /// When no manager listens there.
    pub fn connect(address: SocketAddr, name: &str) -> Self {
        let stream = eventually("the manager's TCP port", || TcpStream::connect(address).ok());
        stream.set_read_timeout(Some(TIMEOUT)).unwrap_or_else(|error| panic!("read timeout: {error}"));
        Self { stream, name: name.to_owned(), next_id: 0 }
    }

    /// Asks for a token and waits for it; the answer is in milliseconds.
    ///
    /// # Panics
    /// When the manager closes the connection or answers another request.
    pub fn quota(&mut self, overuse_ms: f64, burst_ms: f64) -> f64 {
        let id = self.id();
        let answer =
            self.exchange(&gemini_frames::quota_request(&self.name.clone(), id, overuse_ms, burst_ms), id);
        gemini_frames::f64_at(&answer, 4)
    }

    /// (used, limit) in bytes.
    ///
    /// # Panics
    /// As [`Self::quota`].
    pub fn memory(&mut self) -> (u64, u64) {
        let id = self.id();
        let answer =
            self.exchange(&gemini_frames::request(&self.name.clone(), id, gemini_frames::MEM_LIMIT, &[]), id);
        (gemini_frames::u64_at(&answer, 4), gemini_frames::u64_at(&answer, 12))
    }

    /// Charges or releases memory; whether the manager agrees.
    ///
    /// # Panics
    /// As [`Self::quota`].
    pub fn update(&mut self, bytes: u64, allocate: bool) -> bool {
        let id = self.id();
        let answer =
            self.exchange(&gemini_frames::memory_request(&self.name.clone(), id, bytes, allocate), id);
        gemini_frames::i32_at(&answer, 4) == 1
    }

    /// Sends bytes as they are.
    ///
    /// # Panics
    /// When they cannot be written.
    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap_or_else(|error| panic!("writing to the manager: {error}"));
    }

    /// The next answer, or `None` when the manager has closed the connection.
    ///
    /// # Panics
    /// When neither happens.
    pub fn answer(&mut self) -> Option<[u8; 40]> {
        let mut bytes = [0; 40];
        match self.stream.read_exact(&mut bytes) {
            Ok(()) => Some(bytes),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("no answer: {error}"),
            Err(_) => None,
        }
    }

    fn id(&mut self) -> i32 {
        self.next_id += 1;
        self.next_id
    }

    fn exchange(&mut self, request: &[u8; 80], id: i32) -> [u8; 40] {
        self.send(request);
        let answer =
            self.answer().unwrap_or_else(|| panic!("{}: the manager closed the connection", self.name));
        assert_eq!(gemini_frames::i32_at(&answer, 0), id, "the answer to another request");
        answer
    }
}

/// A Gemini manager: answers every request at once, except that tokens wait until [`GeminiManager::grant`] allows them.
pub struct GeminiManager {
    address: SocketAddr,
    state: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    received: Vec<Received>,
    granting: bool,
    quota_ms: f64,
    used: u64,
    limit: u64,
}

impl GeminiManager {
    /// Listens on loopback; `limit` is the memory limit in bytes, `quota_ms` what each token is worth.
    ///
    /// # Panics
    /// When no port is free.
    pub fn start(limit: u64, quota_ms: f64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap_or_else(|error| panic!("listening: {error}"));
        let address = listener.local_addr().unwrap_or_else(|error| panic!("own address: {error}"));
        let state = Arc::new(Shared::default());
        *state.lock() = State { limit, quota_ms, ..State::default() };
        let shared = Arc::clone(&state);
        // Ends with the test process: a manager has no other reason to stop listening.
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                thread::spawn(move || shared.serve(stream));
            }
        });
        Self { address, state }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Allows or withholds tokens from now on.
    pub fn grant(&self, granting: bool) {
        self.state.lock().granting = granting;
        self.state.changed.notify_all();
    }

    /// Everything received so far.
    pub fn received(&self) -> Vec<Received> {
        self.state.lock().received.clone()
    }

    /// How many requests of this type have come.
    pub fn count(&self, kind: u32) -> usize {
        self.state.lock().received.iter().filter(|request| request.kind == kind).count()
    }

    /// Bytes charged.
    pub fn used(&self) -> u64 {
        self.state.lock().used
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, mut stream: TcpStream) {
        let mut charged: u64 = 0;
        let mut frame = [0; 80];
        while stream.read_exact(&mut frame).is_ok() {
            let Some(request) = gemini_frames::received(&frame) else { break };
            let mut state = self.lock();
            state.received.push(request.clone());
            let payload = match request.kind {
                gemini_frames::QUOTA => {
                    while !state.granting {
                        state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                    }
                    state.quota_ms.to_le_bytes().to_vec()
                }
                gemini_frames::MEM_LIMIT => [state.used.to_le_bytes(), state.limit.to_le_bytes()].concat(),
                gemini_frames::MEM_UPDATE => {
                    let bytes = gemini_frames::u64_at(&request.payload, 0);
                    let granted = if gemini_frames::i32_at(&request.payload, 8) == 0 {
                        state.used = state.used.saturating_sub(bytes);
                        charged = charged.saturating_sub(bytes);
                        1
                    } else if state.used.saturating_add(bytes) <= state.limit {
                        state.used += bytes;
                        charged += bytes;
                        1_i32
                    } else {
                        0
                    };
                    granted.to_le_bytes().to_vec()
                }
                // Gemini logs a warning and sends no answer; a client that waits for one waits for ever.
                _ => continue,
            };
            drop(state);
            if stream.write_all(&gemini_frames::answer(request.id, &payload)).is_err() {
                break;
            }
        }
        self.lock().used -= charged;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gemini_client_and_manager_exchange_all_requests() {
        let manager = GeminiManager::start(100, 12.5);
        let mut client = GeminiClient::connect(manager.address(), "a/b");
        assert_eq!(client.memory(), (0, 100));
        assert!(client.update(100, true));
        assert!(!client.update(1, true));
        assert!(client.update(40, false));
        assert_eq!((client.memory(), manager.used()), ((60, 100), 60));
        manager.grant(true);
        assert!((client.quota(1.0, 2.0) - 12.5).abs() < f64::EPSILON);
        let received = manager.received().pop().map(|last| (last.name, last.kind, last.payload));
        let (name, kind, payload) = received.unwrap();
        assert_eq!((name.as_str(), kind), ("a/b", gemini_frames::QUOTA));
        assert_eq!((gemini_frames::f64_at(&payload, 0), gemini_frames::f64_at(&payload, 8)), (1.0, 2.0));
        drop(client);
        eventually("the memory of the disconnected client", || (manager.used() == 0).then_some(()));
    }
}
