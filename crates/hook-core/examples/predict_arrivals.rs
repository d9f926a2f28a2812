//! What the hook predicts of a series of requests, for `tools/predictors/measure.py`.
//!
//! Standard input has the begin of each request in nanoseconds, one a line. Each line of the output has the time and the margin that were
//! predicted for that request before it came, or `-`.

use sluice_hook_core::hold_kernel::ArrivalPredictor;
use std::io::{self, BufRead, Write};

fn main() -> io::Result<()> {
    let (input, mut output) = (io::stdin().lock(), io::stdout().lock());
    let mut predictor = ArrivalPredictor::default();
    for line in input.lines() {
        match predictor.next() {
            Some(due) => writeln!(output, "{} {}", due.mean_ns, due.margin_ns)?,
            None => writeln!(output, "-")?,
        }
        predictor.learn(line?.trim().parse().map_err(io::Error::other)?);
    }
    Ok(())
}
