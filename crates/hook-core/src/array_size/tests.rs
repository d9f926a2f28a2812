use super::*;

const FLOAT: u32 = 0x20;
const UINT8: u32 = 0x01;

fn shape(width: u64, height: u64, depth: u64) -> ArrayShape {
    ArrayShape { width, height, depth, format: FLOAT, channels: 1, layered: false, deferred: false }
}

#[test]
fn a_dimension_that_does_not_exist_counts_as_one() {
    assert_eq!(shape(100, 0, 0).bytes(), 400);
    assert_eq!(shape(100, 10, 0).bytes(), 4000);
    assert_eq!(shape(100, 10, 5).bytes(), 20_000);
    assert_eq!(shape(100, 0, 5).bytes(), 2000, "five layers of a one-dimensional array");
}

#[test]
fn channels_and_formats_set_the_size_of_an_element() {
    assert_eq!(ArrayShape { format: UINT8, channels: 4, ..shape(10, 10, 0) }.bytes(), 400);
    assert_eq!(ArrayShape { format: 0x10, channels: 2, ..shape(10, 10, 0) }.bytes(), 400);
    assert_eq!(ArrayShape { format: 0xb0, channels: 3, ..shape(16, 16, 0) }.bytes(), 384);
}

#[test]
fn a_mipmap_is_charged_for_all_its_levels() {
    assert_eq!(shape(8, 8, 0).mipmap_bytes(4), (64 + 16 + 4 + 1) * 4);
    assert_eq!(shape(8, 8, 0).mipmap_bytes(100), (64 + 16 + 4 + 1) * 4, "no level below one texel");
    assert_eq!(shape(8, 8, 0).mipmap_bytes(2), (64 + 16) * 4);
    assert_eq!(shape(8, 2, 0).mipmap_bytes(3), (16 + 4 + 2) * 4);
    assert_eq!(shape(8, 0, 0).mipmap_bytes(9), (8 + 4 + 2 + 1) * 4);
}

#[test]
fn layers_are_not_halved_by_mipmap_levels_and_depth_is() {
    assert_eq!(ArrayShape { layered: true, ..shape(4, 4, 6) }.mipmap_bytes(2), (16 * 6 + 4 * 6) * 4);
    assert_eq!(shape(4, 4, 4).mipmap_bytes(2), (64 + 8) * 4);
}

#[test]
fn an_array_without_memory_of_its_own_costs_nothing() {
    assert_eq!(ArrayShape { deferred: true, ..shape(4, 4, 4) }.bytes(), 0);
}

#[test]
fn an_absurd_shape_does_not_wrap_into_a_small_charge() {
    assert!(shape(u64::MAX, u64::MAX, 2).bytes() >= u64::MAX / 8);
}
