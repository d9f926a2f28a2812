//! A fake test program, and GPUs that are in use or idle.

use std::fs;
use std::path::Path;

use super::*;
use crate::gpus::driver::DriverUnavailable;
use crate::gpus::fake::{DRIVER, FakeDriver};
use sluice_nvrm::self_test::{Effect, SelfTestResult};

const GPU: &str = "GPU-1";

struct Node {
    root: tempfile::TempDir,
    gpus: Arc<FakeDriver>,
}

impl Node {
    /// A node whose test program runs this shell text. `$file` is the result file; the file `found` holds a result to
    /// copy there.
    fn new(does: &str) -> Self {
        let node = Self { root: tempfile::tempdir().unwrap(), gpus: Arc::new(FakeDriver::healthy(1)) };
        fs::create_dir(node.path("self-test")).unwrap();
        fs::write(node.path("does"), does).unwrap();
        node
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Sets the result that the next test finds.
    fn finds(&self, about: &SelfTestSubject, stops: Effect, slices: Effect) {
        let result = SelfTestResult { about: about.clone(), slices, stops, counts: Effect::Proven };
        fs::write(self.path("found"), serde_json::to_vec(&result).unwrap()).unwrap();
    }

    /// The result as at a start of the agent.
    async fn result(&self) -> SelfTestRun {
        self.result_of(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/self-test")).await
    }

    async fn result_of(&self, program: &str) -> SelfTestRun {
        let tools = Tools {
            program: program.into(),
            library: "/lib/libsluice.so".into(),
            folder: self.path("self-test"),
            simulated: true,
        };
        Tester::new(tools, self.gpus.clone()).result_for(GPU).await
    }

    /// The arguments of each run of the program.
    fn arguments(&self) -> Vec<String> {
        let text = fs::read_to_string(self.path("arguments")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

fn about() -> SelfTestSubject {
    SelfTestSubject::now(DRIVER, GPU)
}

const WRITES: &str = "cp found \"$file\"";

fn read(file: &Path) -> SelfTestResult {
    serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
}

#[tokio::test]
async fn gpu_is_tested_once_and_the_result_is_reused() {
    let node = Node::new(WRITES);
    node.finds(&about(), Effect::Proven, Effect::Proven);
    for _ in 0..2 {
        let run = node.result().await;
        assert_eq!(run.outcome, Outcome::Proven);
        assert_eq!(read(&run.result_file.unwrap()).about, about());
    }
    let [arguments] = &node.arguments()[..] else { panic!("{:?}", node.arguments()) };
    let expected = format!("self-test --gpu sim --gpu-uuid {GPU} --library /lib/libsluice.so --write");
    assert!(arguments.contains(&expected) && arguments.starts_with("--parent "), "{arguments}");
}

#[tokio::test]
async fn another_driver_repeats_the_test_and_removes_the_old_result() {
    let node = Node::new(WRITES);
    node.finds(&about(), Effect::Proven, Effect::Proven);
    let old = node.result().await.result_file.unwrap();
    let newer = SelfTestSubject { driver: "701".to_owned(), ..about() };
    node.gpus.set_usage(Ok(Usage { driver: "701".to_owned(), processes: 0 }));
    node.finds(&newer, Effect::NoEffect, Effect::NoEffect);
    let run = node.result().await;
    assert_eq!(run.outcome.name(), "no-effect");
    assert_eq!(
        read(&run.result_file.unwrap()).about,
        newer,
        "the manager gets a result without proven effects"
    );
    assert!(!old.exists());
}

#[tokio::test]
async fn gpu_in_use_is_not_tested_until_it_is_idle() {
    let node = Node::new(WRITES);
    node.finds(&about(), Effect::Proven, Effect::Proven);
    node.gpus.set_usage(Ok(Usage { driver: DRIVER.to_owned(), processes: 2 }));
    assert_eq!(node.result().await, SelfTestRun::without(Outcome::InUse { processes: 2 }));
    assert_eq!(node.arguments(), [""; 0]);
    node.gpus.set_usage(Ok(Usage { driver: DRIVER.to_owned(), processes: 0 }));
    assert_eq!(node.result().await.outcome, Outcome::Proven);
    // A known result also holds for a GPU in use.
    node.gpus.set_usage(Ok(Usage { driver: DRIVER.to_owned(), processes: 2 }));
    assert_eq!(node.result().await.outcome, Outcome::Proven);
    assert_eq!(node.arguments().len(), 1);
}

#[tokio::test]
async fn inconclusive_test_is_repeated() {
    let node = Node::new(WRITES);
    node.finds(&about(), Effect::inconclusive("few"), Effect::Proven);
    assert_eq!(node.result().await.outcome.name(), "inconclusive");
    node.finds(&about(), Effect::Proven, Effect::Proven);
    assert_eq!(node.result().await.outcome, Outcome::Proven);
}

#[tokio::test]
async fn failed_test_leaves_no_result_and_reports_why() {
    let node = Node::new("echo first >&2; echo 'sluice: no libcuda.so.1' >&2; exit 1");
    let why = "sluice: no libcuda.so.1".to_owned();
    assert_eq!(node.result().await, SelfTestRun::without(Outcome::Failed { why }));
    let Outcome::Failed { why } = node.result_of("/nowhere/sluice").await.outcome else { panic!() };
    assert!(why.contains("No such file"), "{why}");
}

#[tokio::test]
async fn result_about_another_driver_does_not_count() {
    let node = Node::new(WRITES);
    node.finds(&SelfTestSubject::now("another", GPU), Effect::Proven, Effect::Proven);
    assert_eq!(node.result().await.outcome.name(), "failed");
}

#[tokio::test]
async fn gpu_is_not_tested_if_the_driver_does_not_report_its_use() {
    let node = Node::new(WRITES);
    node.gpus.set_usage(Err(DriverUnavailable("not supported".to_owned())));
    let run = node.result().await;
    assert!(matches!(&run.outcome, Outcome::Untried { why } if why.contains("not supported")), "{run:?}");
    assert_eq!(node.arguments(), [""; 0]);
}
