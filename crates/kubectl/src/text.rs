//! Lines for people: columns of equal width, amounts with units.

const MIB: f64 = 1_048_576.0;

/// One line before the widths of the columns are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Line {
    /// Names of the columns.
    Heading(Vec<String>),
    /// One cell for each column.
    Cells(Vec<String>),
    /// Text across all columns, above the lines that belong to it.
    Section(String),
    /// Text across all columns.
    Note(String),
}

impl Line {
    pub(crate) fn heading(cells: &[&str]) -> Self {
        Self::Heading(cells.iter().map(|cell| (*cell).to_owned()).collect())
    }

    fn cells(&self) -> &[String] {
        match self {
            Self::Heading(cells) | Self::Cells(cells) => cells,
            Self::Section(_) | Self::Note(_) => &[],
        }
    }
}

/// The lines with their columns aligned, without blanks at the ends.
pub(crate) fn layout(lines: &[Line]) -> Vec<String> {
    let mut widths: Vec<usize> = Vec::new();
    for line in lines {
        for (column, cell) in line.cells().iter().enumerate() {
            let width = cell.chars().count();
            match widths.get_mut(column) {
                Some(widest) => *widest = width.max(*widest),
                None => widths.push(width),
            }
        }
    }
    let aligned = |cells: &[String]| {
        let padded = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    lines
        .iter()
        .map(|line| match line {
            Line::Heading(cells) | Line::Cells(cells) => aligned(cells),
            Line::Section(text) | Line::Note(text) => text.clone(),
        })
        .collect()
}

/// A share of a GPU: `0.300`.
pub(crate) fn share(fraction: f64) -> String {
    format!("{fraction:.3}")
}

/// Memory: `4.0 GiB`, `64 MiB`.
pub(crate) fn memory(bytes: u64) -> String {
    let mib = bytes as f64 / MIB;
    if mib >= 1024.0 { format!("{:.1} GiB", mib / 1024.0) } else { format!("{mib:.0} MiB") }
}

/// A time: `1.5 ms`, `20 µs`, `2.0 s`.
pub(crate) fn time(seconds: f64) -> String {
    match seconds {
        1.0.. => format!("{seconds:.1} s"),
        0.001.. => format!("{:.1} ms", seconds * 1e3),
        _ => format!("{:.0} µs", seconds * 1e6),
    }
}

/// A value, or `-` for an unknown one.
pub(crate) fn or_dash<T>(value: Option<T>, format: impl Fn(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), format)
}

/// A GPU's name for a person: its ordinal on the node. An instance of a GPU in MIG mode has the ordinal of its GPU, so its UUID is shown.
pub(crate) fn gpu(uuid: &str, ordinal: Option<u32>) -> String {
    match ordinal {
        Some(ordinal) if !uuid.starts_with("MIG-") => format!("gpu-{ordinal}"),
        _ => uuid.to_owned(),
    }
}

/// A count with its noun: `1 pod`, `2 pods`.
pub(crate) fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Text from a cluster or a page without control characters, which a terminal would obey.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|character| if character.is_control() { ' ' } else { character }).collect()
}

#[cfg(test)]
mod tests;
