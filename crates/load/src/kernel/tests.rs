use super::*;

fn run(n: u32, launches: u64) -> u64 {
    let mut words: Vec<u64> = (0..u64::from(n)).map(initial).collect();
    for _ in 0..launches {
        for (index, word) in words.iter_mut().enumerate() {
            *word = mix(*word, index as u64);
        }
    }
    checksum(words)
}

#[test]
fn expected_checksum_is_that_of_a_buffer_after_the_launches() {
    for launches in [0, 1, 2, 3, 7, 64, 100, 1023] {
        assert_eq!(expected_checksum(37, launches), run(37, launches), "{launches} launches");
    }
}

#[test]
fn one_launch_more_or_less_changes_the_checksum() {
    assert_ne!(expected_checksum(256, 1_000_000), expected_checksum(256, 1_000_001));
    assert_ne!(expected_checksum(256, 1_000_000), expected_checksum(256, 999_999));
}

#[test]
fn swapped_words_change_the_checksum() {
    assert_ne!(checksum([1, 2, 3]), checksum([1, 3, 2]));
}

#[test]
fn one_millisecond_is_495_thousand_iterations() {
    assert_eq!(iterations(Duration::from_millis(1)), 495_050);
    assert_eq!(iterations(Duration::ZERO), 0);
}

#[test]
fn module_text_depends_on_the_device_name() {
    assert!(module_for("Sluice Simulated H200").starts_with("SLUICE-SIM"));
    assert!(module_for("NVIDIA H200").contains(".entry spin"));
}

#[test]
fn loop_of_the_gpu_kernel_has_256_iterations_per_round() {
    let text = module_for("NVIDIA H200");
    let body = text.split_once("MANY:\n").and_then(|(_, rest)| rest.split_once("bra MANY")).unwrap().0;
    assert_eq!(body.matches("fma.rn.f32").count(), 256);
    assert!(text.contains("shr.u32 %left, %left, 8;"), "256 iterations per round");
}
