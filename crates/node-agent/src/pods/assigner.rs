//! Applies [`assign`] whenever pods or GPUs change, and reports new refusals.

use std::sync::Arc;

use sluice_placement::inventory::NodeInventory;
use tokio::sync::watch;
use tracing::warn;

use super::assign::{Assignments, assign};
use super::{PodView, PodsWatch, Refusal};
use crate::managers::ClientSets;

/// Publishes the clients of each GPU.
#[derive(Debug)]
pub struct ClientAssigner {
    /// The clients of each GPU; `None` until pods and GPUs are known.
    pub sets: watch::Sender<Option<Arc<ClientSets>>>,
    /// The same with refusals, for metrics and events.
    pub assignments: watch::Sender<Arc<Assignments>>,
}

impl Default for ClientAssigner {
    fn default() -> Self {
        Self { sets: watch::Sender::new(None), assignments: watch::Sender::new(Arc::default()) }
    }
}

impl ClientAssigner {
    /// Runs until pods or GPUs no longer come. `on_refusal` is called once for each refusal.
    pub async fn run(
        self,
        mut pods: PodsWatch,
        mut inventory: watch::Receiver<NodeInventory>,
        mut on_refusal: impl FnMut(&PodView, &Refusal),
    ) {
        loop {
            let known = pods.borrow_and_update().clone();
            let gpus = inventory.borrow_and_update().clone();
            if let Some(known) = known {
                let before = Arc::clone(&self.assignments.borrow());
                let now = assign(&known, &gpus, &before);
                // The same reason with other numbers is not reported again.
                let kind = std::mem::discriminant::<Refusal>;
                let is_new = |uid: &str, why| before.refused.get(uid).map(kind) != Some(kind(why));
                let new_refusals = now.refused.iter().filter(|(uid, why)| is_new(uid, why));
                for (uid, why) in new_refusals {
                    if let Some(pod) = known.get(uid) {
                        warn!(pod = pod.full_name(), uid, %why, "the pod gets no GPU");
                        on_refusal(pod, why);
                    }
                }
                self.publish(now);
            }
            tokio::select! {
                changed = pods.changed() => if changed.is_err() { return },
                changed = inventory.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Assignments are published first: a reader that sees the sets also sees the assignments.
    fn publish(&self, now: Assignments) {
        let now = Arc::new(now);
        self.assignments.send_if_modified(|last| {
            let is_news = *last != now;
            if is_news {
                *last = Arc::clone(&now);
            }
            is_news
        });
        self.sets.send_if_modified(|sets| {
            let is_news = sets.as_deref() != Some(&now.sets);
            if is_news {
                *sets = Some(Arc::new(now.sets.clone()));
            }
            is_news
        });
    }
}
