use anyhow::bail;

use super::*;

#[test]
fn lock_is_tried_after_groups_have_failed_if_either_is_allowed() {
    assert_eq!(choose(By::Either, || Ok("groups"), || Ok("lock")).unwrap(), "groups");
    assert_eq!(choose(By::Either, || bail!("not stopped"), || Ok("lock")).unwrap(), "lock");
    let both = choose::<&str>(By::Either, || bail!("not stopped"), || bail!("not locked"));
    assert_eq!(both.unwrap_err().to_string(), "not locked");
    assert_eq!(
        choose(By::Groups, || bail!("not stopped"), || Ok("lock")).unwrap_err().to_string(),
        "not stopped"
    );
    assert_eq!(choose(By::Lock, || Ok("groups"), || Ok("lock")).unwrap(), "lock");
}
