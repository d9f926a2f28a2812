use super::*;

#[test]
fn clients_whose_names_differ_in_one_character_all_have_their_series() {
    let (metrics, exposition) = pair().unwrap();
    let names: Vec<String> = (0..100).map(|client| format!("client-{client}")).collect();
    let added: Vec<_> =
        names.iter().map(|name| metrics.add(&ClientKey::Named(name.clone())).unwrap()).collect();
    let text = exposition.text().unwrap();
    for name in &names {
        assert!(text.contains(&format!("sluice_processes{{client=\"{name}\"}} 0")), "{name} has no series");
    }
    added.into_iter().for_each(|client| metrics.remove(client));
    assert!(!exposition.text().unwrap().contains("client-"));
}
