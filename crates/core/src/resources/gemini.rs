//! Gemini's notation: a count, then that many lines `NAME REQUEST LIMIT GPU_MEM`, words separated by white space.

use super::check::RawEntry;
use super::{Mistake, ParseOptions, Place};

const COUNT: &str = "the number of clients in Gemini's notation, or `clients:` in YAML";

/// Splits the text into entries. Empty lines are skipped; anything else that Gemini would misread is a mistake.
pub(super) fn read(text: &str, reading: ParseOptions) -> (Vec<RawEntry>, Vec<Mistake>) {
    let mut mistakes = Vec::new();
    let lines = text.lines().enumerate().map(|(n, line)| (n + 1, line.trim()));
    let lines: Vec<(usize, &str)> = lines.filter(|(_, line)| !line.is_empty()).collect();
    let Some(((count_line, count), lines)) = lines.split_first() else {
        return (Vec::new(), vec![Mistake::new(Some(1), "file", "nothing", COUNT)]);
    };
    match count.parse::<usize>() {
        Err(_) => mistakes.push(Mistake::new(Some(*count_line), "count", format!("{count:?}"), COUNT)),
        Ok(count) if count != lines.len() => {
            let expected = format!("{}, the number of lines that follow", lines.len());
            mistakes.push(Mistake::new(Some(*count_line), "count", count, &expected));
        }
        Ok(_) => {}
    }
    let entry = |(number, line): &(usize, &str)| entry(*number, line, reading, &mut mistakes);
    (lines.iter().filter_map(entry).collect(), mistakes)
}

fn entry(line: usize, text: &str, reading: ParseOptions, mistakes: &mut Vec<Mistake>) -> Option<RawEntry> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [name, first, second, memory] = words[..] else {
        let order =
            if reading.limit_first { "NAME LIMIT REQUEST GPU_MEM" } else { "NAME REQUEST LIMIT GPU_MEM" };
        let field = format!("client {:?}", words.first().unwrap_or(&""));
        let (found, expected) = (format!("{} words", words.len()), format!("four: {order}"));
        mistakes.push(Mistake::new(Some(line), field, found, &expected));
        return None;
    };
    let (request, limit) = if reading.limit_first { (second, first) } else { (first, second) };
    Some(RawEntry {
        place: Place { line: Some(line), path: name.to_owned() },
        name: Some(name.to_owned()),
        request: Some(request.to_owned()),
        limit: Some(limit.to_owned()),
        memory: Some(memory.to_owned()),
        class: None,
        slo: None,
        overcommit: false,
        suspended: false,
    })
}
