use super::*;

#[test]
fn labels_with_commas_braces_and_escapes_are_read_whole() {
    let page = "# HELP x text\n# TYPE x gauge\n\
                x{model=\"GPU, 80{GB}\",path=\"a\\\\b \\\"c\\\"\\nd\",empty=\"\"} 0.25\nplain 3 1700000000\ny{} 2\n";
    let all: Vec<Sample<'_>> = samples(page).collect();
    assert_eq!(all.len(), 3);
    assert_eq!((all[0].name, all[0].value), ("x", 0.25));
    assert_eq!(all[0].label("model"), Some("GPU, 80{GB}"));
    assert_eq!(all[0].label("path"), Some("a\\b \"c\"\nd"));
    assert_eq!(all[0].label("empty"), None);
    assert_eq!((all[1].name, all[1].value), ("plain", 3.0));
    assert_eq!((all[2].name, all[2].value), ("y", 2.0));
}

#[test]
fn infinite_bounds_are_read() {
    let bucket = samples("b_bucket{le=\"+Inf\"} 7").next().unwrap();
    assert_eq!(bucket.label("le").unwrap().parse::<f64>().unwrap(), f64::INFINITY);
}

proptest::proptest! {
    #[test]
    fn any_page_is_read_without_a_panic(page in "[a-z{}=\",\\\\ 0-9\n#é]{0,200}") {
        for sample in samples(&page) {
            let _ = sample.label("a");
        }
    }
}
