//! A thread beside the event loop: the watcher of the resource file, the control API, metrics.

use crate::error::{Attempt, Error, Result};
use std::fmt::Debug;
use std::future::Future;
use std::thread::JoinHandle;
use tokio::sync::oneshot;

/// A thread that ends when it is told to.
#[derive(Debug)]
pub(crate) struct SideThread {
    name: &'static str,
    /// Dropping it tells the thread to end.
    end: Box<dyn Debug + Send>,
    thread: JoinHandle<()>,
}

impl SideThread {
    /// Starts a thread that runs until `end` is dropped.
    pub(crate) fn start(
        name: &'static str,
        end: impl Debug + Send + 'static,
        run: impl FnOnce() + Send + 'static,
    ) -> Result<Self> {
        let thread = std::thread::Builder::new().name(format!("sluice-{name}")).spawn(run);
        let thread = thread.map_err(|error| Error::Thread(name, error))?;
        Ok(Self { name, end: Box::new(end), thread })
    }

    /// Starts a thread with a runtime of its own, which serves until the thread is told to end.
    pub(crate) fn serve(
        name: &'static str,
        serve: impl Future<Output = ()> + Send + 'static,
    ) -> Result<Self> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().attempt("tokio runtime")?;
        let (end, ended) = oneshot::channel::<()>();
        let serve = async move {
            tokio::select! {
                () = serve => {}
                _ = ended => {}
            }
        };
        Self::start(name, end, move || runtime.block_on(serve))
    }

    /// Ends the thread; what it served is gone when this returns.
    pub(crate) fn stop(self) -> Result<()> {
        drop(self.end);
        self.thread.join().map_err(|_| Error::Panicked(self.name))
    }
}
