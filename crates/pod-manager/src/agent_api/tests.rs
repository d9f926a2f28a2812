use super::*;

#[test]
fn older_set_of_the_same_agent_is_refused_and_any_set_of_a_new_agent_is_accepted() {
    let mut api = AgentApi::default();
    let set =
        |agent: &str, generation| ClientSet { generation, agent_instance: agent.into(), clients: Vec::new() };
    assert!(api.accept(set("a", 5)).is_ok() && api.accept(set("a", 5)).is_ok());
    assert_eq!(api.accept(set("a", 4)), Err(Outdated { in_force: 5 }));
    assert!(api.accept(set("b", 1)).is_ok());
}
