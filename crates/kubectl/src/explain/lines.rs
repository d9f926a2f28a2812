//! The explanation in words.

use super::{Asks, Explanation, NodeAnswer, PodState};
use crate::text::{Line, count, gpu, memory, printable, share};

/// Events that the text shows.
const EVENTS: usize = 5;

impl Explanation {
    pub(crate) fn lines(&self) -> Vec<Line> {
        let mut lines = vec![self.summary()];
        lines.extend(self.asks.as_ref().map(|asks| format!("It asks for {}.", asks.text())));
        if let PodState::Waiting { scheduler, message, nominated_node } = &self.state {
            lines.push(match message {
                Some(message) => format!("{scheduler} reports: {message}"),
                None => format!("{scheduler} has not reported an attempt to place it."),
            });
            if let Some(node) = nominated_node {
                lines.push(format!("{scheduler} evicts pods on {node} to make room for it."));
            }
            lines.push(self.conclusion(scheduler));
            lines.extend(self.nodes.iter().flat_map(NodeAnswer::lines));
        }
        if !self.events.is_empty() {
            lines.push("Latest events:".to_owned());
            let latest = self.events.iter().skip(self.events.len().saturating_sub(EVENTS));
            lines.extend(latest.map(|event| format!("  {}: {}", event.reason, event.message)));
        }
        lines.iter().map(|line| Line::Note(printable(line))).collect()
    }

    fn summary(&self) -> String {
        let pod = format!("{}/{}", self.namespace, self.pod);
        match &self.state {
            PodState::NoRequest => {
                format!(
                    "{pod} asks for no GPU of Sluice: it has neither sluice.dev/quota nor sluice.dev/memory."
                )
            }
            PodState::InvalidRequest { mistakes } => {
                format!("The request of {pod} cannot be read: {mistakes}.")
            }
            PodState::Ended { phase } => format!("{pod} has ended ({phase}). Its GPUs are free."),
            PodState::Deleted => format!("{pod} is being deleted and gets no GPU."),
            PodState::Assigned { node, gpus, phase } => {
                let waits = if phase == "Pending" { " Its containers have not started." } else { "" };
                format!("{pod} has {} of {node}.{waits}", gpus.join(", "))
            }
            PodState::BoundWithoutGpus { node, scheduler } => format!(
                "{pod} was bound to {node} by {scheduler}, without a GPU: this scheduler does not call Sluice's extender."
            ),
            PodState::Waiting { .. } => format!("{pod} waits for a GPU."),
        }
    }

    fn conclusion(&self, scheduler: &str) -> String {
        let fitting = self.nodes.iter().filter(|node| node.fits).count();
        match (self.nodes.len(), fitting) {
            (0, _) => "No node has GPUs of Sluice.".to_owned(),
            (all, 0) => format!("Its GPUs fit on none of {}:", count(all, "node")),
            (all, fitting) => format!(
                "Its GPUs fit on {fitting} of {}. If it stays pending, {scheduler}'s report has the reason.",
                count(all, "node")
            ),
        }
    }
}

impl Asks {
    fn text(&self) -> String {
        let (gpus, its) = match self.gpus {
            1 => ("a GPU".to_owned(), "its memory"),
            gpus => (format!("each of {gpus} GPUs"), "the memory of each"),
        };
        let mut text = match self.memory_bytes {
            Some(bytes) => format!("{} of {gpus} and {} of {its}", share(self.share), memory(bytes)),
            None if self.share < 1.0 => {
                format!("{} of {gpus} and the same share of {its}", share(self.share))
            }
            None => count(self.gpus as usize, "whole GPU"),
        };
        let selectors = [(&self.models, "model"), (&self.uuids, "UUID")];
        for (names, kind) in selectors.into_iter().filter(|(names, _)| !names.is_empty()) {
            text.push_str(&format!(", {kind} {}", names.join(" or ")));
        }
        format!("{text}; its priority is {}", self.priority)
    }
}

impl NodeAnswer {
    fn lines(&self) -> Vec<String> {
        let cordoned = if self.cordoned { " (cordoned: takes no new pods)" } else { "" };
        if self.fits {
            let gpus: Vec<String> = self.gpus.iter().map(|one| gpu(&one.gpu, Some(one.index))).collect();
            return vec![format!("  {}{cordoned}: fits, for example on {}", self.node, gpus.join(", "))];
        }
        let reason = self.reason.as_deref().unwrap_or_default();
        let mut lines = vec![format!("  {}{cordoned}: {reason}", self.node)];
        if self.fragmented {
            lines.push(format!(
                "    fragmented: {} is free in all, at most {} on one GPU",
                share(self.free_share),
                share(self.largest_free_share)
            ));
        }
        if !self.fits_after_end_of.is_empty() {
            lines.push(format!("    fits after the end of {}", self.fits_after_end_of.join(", ")));
        }
        lines
    }
}
