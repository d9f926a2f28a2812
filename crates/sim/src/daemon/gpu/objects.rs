//! Objects of processes on the GPU: files of the control device, contexts and graphs.

use super::{EXCLUSIVE, Gpu, PROHIBITED};
use crate::engine::{Graph, Node};
use crate::rm::FileId;
use crate::wire::message::ControlGroup;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

impl Gpu {
    pub(in crate::daemon) fn open_control(&mut self, key: u64) -> io::Result<OwnedFd> {
        let Some(tenant) = self.tenants.get(&key) else { return Err(io::ErrorKind::InvalidInput.into()) };
        self.files.open(self.rm.open(), key, tenant.owner)
    }

    /// Executes the ioctls that have arrived over a file of the control device.
    pub(in crate::daemon) fn serve_file(&mut self, file: FileId, now: u64) {
        if !self.files.serve(file, now, &mut self.rm, &mut self.engine) {
            self.close_control(file);
        }
    }

    /// Frees what was allocated over a file of which every descriptor has been closed.
    fn close_control(&mut self, file: FileId) {
        self.rm.close(file, &mut self.engine);
        let Some((key, owner)) = self.files.close(file) else { return };
        if !self.tenants.contains_key(&key) && self.files.of(key).is_none() {
            self.engine.account_mut().release(owner);
        }
    }

    /// Opens a context; `None` if there is not enough memory.
    pub(in crate::daemon) fn open_context(&mut self, key: u64, control: Option<ControlGroup>) -> Option<u64> {
        let tenant = self.tenants.get_mut(&key)?;
        if !self.engine.account_mut().open_context(tenant.owner, self.config.context_bytes) {
            return None;
        }
        let group = self.engine.add_group(tenant.owner, self.config.timeslice_ns);
        tenant.groups.push(group);
        if let (Some(file), Some(ControlGroup { client, group: handle })) = (self.files.of(key), control)
            && !self.rm.bind(file, client, handle, group, &mut self.engine)
        {
            tracing::warn!("a context names channel group {handle:#x}, which its process does not have");
        }
        Some(group.0)
    }

    /// Whether the compute mode allows this process a context.
    pub(in crate::daemon) fn allows_context(&self, key: u64) -> bool {
        let others = self.tenants.iter().filter(|(other, _)| **other != key);
        match self.config.gpu.compute_mode {
            PROHIBITED => false,
            EXCLUSIVE => !others.map(|(_, tenant)| tenant).any(|tenant| !tenant.groups.is_empty()),
            _ => true,
        }
    }

    /// Closes a context with everything in it. Returns `false` if the process has no such context.
    pub(in crate::daemon) fn close_context(&mut self, key: u64, group: u64) -> bool {
        let Some(tenant) = self.tenants.get_mut(&key) else { return false };
        let Some(index) = tenant.groups.iter().position(|each| each.0 == group) else { return false };
        let group = tenant.groups.swap_remove(index);
        self.engine.remove_group(group);
        self.rm.unbind(group);
        self.engine.account_mut().close_context(tenant.owner, self.config.context_bytes);
        true
    }

    /// Registers a graph; `None` if it is not in topological order, or has a kernel without a name.
    pub(in crate::daemon) fn add_graph(
        &mut self,
        key: u64,
        nodes: Vec<Node>,
        relaunches: bool,
    ) -> Option<u64> {
        let tenant = self.tenants.get_mut(&key)?;
        let names = self.engine.account().names(tenant.owner);
        let is_known = |node: &Node| node.work.name().is_none_or(|name| name < names);
        if !nodes.iter().all(is_known) {
            return None;
        }
        let graph = Arc::new(Graph::new(nodes, relaunches)?);
        tenant.next_graph += 1;
        tenant.graphs.insert(tenant.next_graph, graph);
        Some(tenant.next_graph)
    }

    /// Removes a graph; launches in progress keep it.
    pub(in crate::daemon) fn drop_graph(&mut self, key: u64, graph: u64) {
        if let Some(tenant) = self.tenants.get_mut(&key) {
            tenant.graphs.remove(&graph);
        }
    }
}
