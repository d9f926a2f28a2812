//! Gemini's notation: a count, then that many lines `NAME REQUEST LIMIT GPU_MEM`, words separated by white space.

use super::ParseOptions;
use super::check::RawEntry;
use super::mistake::{Mistake, Place};

/// Splits the text into entries. Empty lines are skipped; anything else that Gemini would misread is a mistake.
pub(super) fn read(text: &str, reading: ParseOptions) -> (Vec<RawEntry>, Vec<Mistake>) {
    let mut mistakes = Vec::new();
    let mut lines =
        text.lines().enumerate().map(|(n, line)| (n + 1, line)).filter(|(_, l)| !l.trim().is_empty());
    let Some((count_line, count_text)) = lines.next() else {
        let expected = "the number of clients in Gemini's notation, or `clients:` in YAML";
        return (Vec::new(), vec![Mistake::new(Some(1), "file", "nothing", expected)]);
    };
    let count = count_text.trim().parse::<usize>();
    if count.is_err() {
        let expected = "the number of clients in Gemini's notation, or `clients:` in YAML";
        mistakes.push(Mistake::new(Some(count_line), "count", format!("{:?}", count_text.trim()), expected));
    }
    let mut entries = Vec::new();
    for (number, line) in lines {
        entries.extend(entry(number, line, reading, &mut mistakes));
    }
    let written = text.lines().filter(|line| !line.trim().is_empty()).count() - 1;
    if let Ok(count) = count
        && count != written
    {
        let (found, expected) = (format!("{count}"), format!("{written}, the number of lines that follow"));
        mistakes.push(Mistake::new(Some(count_line), "count", found, &expected));
    }
    (entries, mistakes)
}

fn entry(line: usize, text: &str, reading: ParseOptions, mistakes: &mut Vec<Mistake>) -> Option<RawEntry> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [name, first, second, memory] = words[..] else {
        let order =
            if reading.limit_first { "NAME LIMIT REQUEST GPU_MEM" } else { "NAME REQUEST LIMIT GPU_MEM" };
        let field = format!("client {:?}", words.first().unwrap_or(&""));
        mistakes.push(Mistake::new(
            Some(line),
            field,
            format!("{} words", words.len()),
            &format!("four: {order}"),
        ));
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
    })
}
