use super::*;

fn config(idle_after: Option<Duration>, bursts: Option<(Duration, Duration)>) -> BeConfig {
    BeConfig {
        device: 0,
        duration: Duration::from_millis(1),
        depth: 1,
        blocks: BLOCKS,
        elements: 1,
        memory: 0,
        grow: false,
        idle_after,
        bursts,
        start_with_mark: false,
        stop: StopCondition::default(),
    }
}

#[test]
fn bursts_and_pauses_alternate() {
    let ms = Duration::from_millis;
    let config = config(None, Some((ms(30), ms(70))));
    assert_eq!(pause(&config, ms(29)), None);
    assert_eq!(pause(&config, ms(30)), Some(ms(70)));
    assert_eq!(pause(&config, ms(199)), Some(ms(1)));
    assert_eq!(pause(&config, ms(200)), None);
}

#[test]
fn generator_stays_idle_after_its_time() {
    let config = config(Some(Duration::from_secs(1)), None);
    assert_eq!(pause(&config, Duration::from_millis(999)), None);
    assert!(
        pause(&config, Duration::from_secs(1)).is_some() && pause(&config, Duration::from_secs(90)).is_some()
    );
}

/// Allocates up to a limit; returns (bytes allocated, refusals).
fn grow(limit: u64) -> (u64, u32) {
    let (mut growth, mut held, mut refused) = (Growth::default(), 0, 0);
    while let Some(bytes) = growth.next() {
        if held + bytes <= limit {
            held += bytes;
        } else {
            refused += 1;
            growth.refused();
        }
    }
    (held, refused)
}

#[test]
fn growth_ends_exactly_at_the_limit_after_27_refusals() {
    for limit in [0, 1, (1 << 30) + 12_345, FIRST_CHUNK - 1, FIRST_CHUNK, FIRST_CHUNK + 1] {
        let (held, refused) = grow(limit);
        assert_eq!(held, limit);
        assert_eq!(refused, 27);
    }
}
