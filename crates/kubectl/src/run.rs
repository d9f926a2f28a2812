//! Runs a command to its end.

use std::io::{IsTerminal, stdout};

use anyhow::Context;
use tokio::runtime::{Builder, Runtime};

use crate::arguments::{Command, ExplainArguments, Format, NodesArguments, TopArguments};
use crate::cluster::Cluster;
use crate::metrics_pages::MetricsPages;
use crate::nodes::Nodes;
use crate::output::print;
use crate::source::Source;
use crate::{terminal, top};

impl Command {
    /// Runs the command.
    ///
    /// # Errors
    /// The cluster or a page cannot be read, or the output cannot be written.
    pub fn run(&self) -> anyhow::Result<()> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .context("cannot start tokio")?;
        let outcome = match self {
            Self::Top(arguments) => run_top(arguments, &runtime),
            Self::Explain(arguments) => runtime.block_on(run_explain(arguments)),
            Self::Nodes(arguments) => runtime.block_on(run_nodes(arguments)),
        };
        // Requests that still run are not waited for.
        runtime.shutdown_background();
        outcome
    }
}

fn run_top(arguments: &TopArguments, runtime: &Runtime) -> anyhow::Result<()> {
    let source = if arguments.metrics.is_empty() {
        let cluster = runtime.block_on(Cluster::connect(&arguments.cluster))?;
        Source::Cluster { cluster, sluice_namespace: arguments.sluice_namespace.clone() }
    } else {
        Source::Pages(MetricsPages::new(arguments.metrics.clone()))
    };
    let format = arguments.output.format;
    if arguments.once || format == Format::Json || !stdout().is_terminal() {
        let top = runtime.block_on(source.top())?;
        return print(&mut stdout().lock(), format, &top, || top::lines(&top)).context("cannot print");
    }
    terminal::run(runtime, source, arguments.interval)
}

async fn run_explain(arguments: &ExplainArguments) -> anyhow::Result<()> {
    let cluster = Cluster::connect(&arguments.cluster).await?;
    let page = cluster.explain(arguments.namespace.as_deref(), &arguments.pod).await?;
    print(&mut stdout().lock(), arguments.output.format, &page, || page.lines()).context("cannot print")
}

async fn run_nodes(arguments: &NodesArguments) -> anyhow::Result<()> {
    let page = Nodes::of(&Cluster::connect(&arguments.cluster).await?.state().await?);
    print(&mut stdout().lock(), arguments.output.format, &page, || page.lines()).context("cannot print")
}
