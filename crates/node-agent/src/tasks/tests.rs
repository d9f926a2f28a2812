use super::*;
use std::future::pending;

#[tokio::test]
async fn failed_task_is_named_with_its_reason() {
    let mut tasks = AgentTasks::new(CancellationToken::new());
    tasks.spawn_abortable("sleeper", pending());
    tasks.spawn_graceful("plugin", async { Err(std::io::Error::other("the folder is gone")) });
    let message = format!("{:#}", tasks.wait().await.unwrap_err());
    assert_eq!(message, "plugin: the folder is gone");
}

#[tokio::test]
async fn task_that_ends_on_its_own_is_a_failure() {
    let mut tasks = AgentTasks::new(CancellationToken::new());
    tasks.spawn_abortable("pods", async {});
    assert!(format!("{:#}", tasks.wait().await.unwrap_err()).starts_with("pods: "));
}

#[tokio::test]
async fn end_waits_for_graceful_tasks() {
    let stop = CancellationToken::new();
    let mut tasks = AgentTasks::new(stop.clone());
    let (tidied, is_tidied) = tokio::sync::oneshot::channel();
    tasks.spawn_graceful("managers", async move {
        stop.cancelled().await;
        tokio::task::yield_now().await;
        let _ = tidied.send(());
        Ok::<(), std::io::Error>(())
    });
    tasks.spawn_abortable("pods", pending());
    tasks.end().await;
    assert!(is_tidied.await.is_ok());
}
