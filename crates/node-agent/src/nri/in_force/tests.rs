use super::*;

#[test]
fn auto_falls_back_to_the_runtime_and_nri_does_not() {
    let registered: Registration = Some(Ok("containerd v2.2.9".into()));
    let absent: Registration = Some(Err("/var/run/nri/nri.sock: no such file".into()));
    let no_device = || Err("no CDI specification names GPU-1".to_owned());
    for wanted in [Injection::Auto, Injection::Nri] {
        assert_eq!(decide(wanted, &registered, Ok(())), InForce::Nri("containerd v2.2.9".into()));
        assert_eq!(decide(wanted, &None, Ok(())), InForce::Unknown);
    }
    for (registration, devices, word) in [(&absent, Ok(()), "nri.sock"), (&registered, no_device(), "GPU-1")]
    {
        let fallback = decide(Injection::Auto, registration, devices.clone());
        assert!(fallback.works() && fallback.label() == Some("runtime"), "{fallback:?}");
        let none = decide(Injection::Nri, registration, devices);
        assert!(!none.works() && none.text().contains(word), "{none:?}");
    }
    assert_eq!(decide(Injection::Runtime, &registered, Ok(())).label(), Some("runtime"));
}
