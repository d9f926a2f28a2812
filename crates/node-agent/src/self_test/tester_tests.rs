//! A fake test program, and GPUs that are in use or idle.

use std::fs;
use std::path::Path;

use super::*;
use crate::gpus::driver::DriverUnavailable;
use crate::gpus::fake::{DRIVER, FakeDriver};
use sluice_nvrm::selftest::{Effect, Verdict};

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
    fn finds(&self, about: &About, stops: Effect, slices: Effect) {
        let verdict = Verdict { about: about.clone(), slices, stops, counts: Effect::Proven };
        fs::write(self.path("found"), serde_json::to_vec(&verdict).unwrap()).unwrap();
    }

    /// The result as at a start of the agent.
    async fn verdict(&self) -> SelfTestRun {
        self.verdict_of(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/self-test")).await
    }

    async fn verdict_of(&self, program: &str) -> SelfTestRun {
        let tools = Tools {
            program: program.into(),
            library: "/lib/libsluice.so".into(),
            folder: self.path("self-test"),
            simulated: true,
        };
        Tester::new(tools, self.gpus.clone()).result_for(GPU).await
    }

    /// The arguments of each run of the program.
    fn told(&self) -> Vec<String> {
        let text = fs::read_to_string(self.path("arguments")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

fn about() -> About {
    About::now(DRIVER, GPU)
}

const WRITES: &str = "cp found \"$file\"";

fn read(file: &Path) -> Verdict {
    serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
}

#[tokio::test]
async fn a_gpu_is_tried_once_and_the_verdict_is_found_again() {
    let node = Node::new(WRITES);
    node.finds(&about(), Effect::Proven, Effect::Proven);
    for _ in 0..2 {
        let tried = node.verdict().await;
        assert_eq!(tried.outcome, Outcome::Proven);
        assert_eq!(read(&tried.result_file.unwrap()).about, about());
    }
    let [told] = &node.told()[..] else { panic!("{:?}", node.told()) };
    let expected = format!("self-test --gpu sim --gpu-uuid {GPU} --library /lib/libsluice.so --write");
    assert!(told.contains(&expected) && told.starts_with("--parent "), "{told}");
}

#[tokio::test]
async fn with_another_driver_it_is_tried_again_and_the_old_verdict_goes() {
    let node = Node::new(WRITES);
    node.finds(&about(), Effect::Proven, Effect::Proven);
    let old = node.verdict().await.result_file.unwrap();
    let newer = About { driver: "701".to_owned(), ..about() };
    node.gpus.set_usage(Ok(Usage { driver: "701".to_owned(), processes: 0 }));
    node.finds(&newer, Effect::NoEffect, Effect::NoEffect);
    let tried = node.verdict().await;
    assert_eq!(tried.outcome.name(), "no-effect");
    assert_eq!(
        read(&tried.result_file.unwrap()).about,
        newer,
        "the manager is told that nothing can be built on"
    );
    assert!(!old.exists());
}

#[tokio::test]
async fn a_gpu_that_somebody_uses_is_left_alone_until_nobody_does() {
    let node = Node::new(WRITES);
    node.finds(&about(), Effect::Proven, Effect::Proven);
    node.gpus.set_usage(Ok(Usage { driver: DRIVER.to_owned(), processes: 2 }));
    assert_eq!(node.verdict().await, SelfTestRun::without(Outcome::InUse { processes: 2 }));
    assert_eq!(node.told(), [""; 0]);
    node.gpus.set_usage(Ok(Usage { driver: DRIVER.to_owned(), processes: 0 }));
    assert_eq!(node.verdict().await.outcome, Outcome::Proven);
    // A known result also holds for a GPU in use.
    node.gpus.set_usage(Ok(Usage { driver: DRIVER.to_owned(), processes: 2 }));
    assert_eq!(node.verdict().await.outcome, Outcome::Proven);
    assert_eq!(node.told().len(), 1);
}

#[tokio::test]
async fn what_could_not_be_told_is_tried_again() {
    let node = Node::new(WRITES);
    node.finds(&about(), Effect::inconclusive("few"), Effect::Proven);
    assert_eq!(node.verdict().await.outcome.name(), "inconclusive");
    node.finds(&about(), Effect::Proven, Effect::Proven);
    assert_eq!(node.verdict().await.outcome, Outcome::Proven);
}

#[tokio::test]
async fn a_test_that_does_not_work_leaves_no_verdict_and_says_why() {
    let node = Node::new("echo first >&2; echo 'sluice: no libcuda.so.1' >&2; exit 1");
    let why = "sluice: no libcuda.so.1".to_owned();
    assert_eq!(node.verdict().await, SelfTestRun::without(Outcome::Failed { why }));
    let Outcome::Failed { why } = node.verdict_of("/nowhere/sluice").await.outcome else { panic!() };
    assert!(why.contains("No such file"), "{why}");
}

#[tokio::test]
async fn a_verdict_about_something_else_is_none() {
    let node = Node::new(WRITES);
    node.finds(&About::now("another", GPU), Effect::Proven, Effect::Proven);
    assert_eq!(node.verdict().await.outcome.name(), "failed");
}

#[tokio::test]
async fn a_driver_that_does_not_say_who_uses_the_gpu_is_not_tried() {
    let node = Node::new(WRITES);
    node.gpus.set_usage(Err(DriverUnavailable("not supported".to_owned())));
    let tried = node.verdict().await;
    assert!(matches!(&tried.outcome, Outcome::Untried { why } if why.contains("not supported")), "{tried:?}");
    assert_eq!(node.told(), [""; 0]);
}
