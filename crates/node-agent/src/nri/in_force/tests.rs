use super::*;

#[test]
fn auto_falls_back_to_the_runtime_and_nri_does_not() {
    let registered: Registration = Some(Ok("containerd v2.2.9".into()));
    let absent: Registration = Some(Err("/var/run/nri/nri.sock: no such file".into()));
    let devices = |qualified: &[&str], missing: Option<&str>| Devices {
        qualified: qualified.iter().map(|&name| name.to_owned()).collect(),
        missing: missing.map(str::to_owned),
    };
    let all = || devices(&["nvidia.com/gpu=GPU-1"], None);
    let none = || devices(&[], Some("no CDI specification names GPU-1"));
    let some = || devices(&["nvidia.com/gpu=GPU-1"], Some("no CDI specification names GPU-2"));
    for wanted in [Injection::Auto, Injection::Nri] {
        assert_eq!(decide(wanted, &registered, all()), InForce::Nri("containerd v2.2.9".into(), None));
        let partly = decide(wanted, &registered, some());
        assert!(partly.label() == Some("nri") && partly.text().contains("GPU-2"), "{partly:?}");
        assert_eq!(decide(wanted, &None, all()), InForce::Unknown);
    }
    for (registration, gpus, word) in [(&absent, all(), "nri.sock"), (&registered, none(), "GPU-1")] {
        let fallback = decide(Injection::Auto, registration, gpus.clone());
        assert!(fallback.works() && fallback.label() == Some("runtime"), "{fallback:?}");
        let unavailable = decide(Injection::Nri, registration, gpus);
        assert!(!unavailable.works() && unavailable.text().contains(word), "{unavailable:?}");
    }
    assert_eq!(decide(Injection::Runtime, &registered, all()).label(), Some("runtime"));
}
