"""A server of models on one GPU: real-time models first, best-effort models on the SMs that those leave. `python -m sluice.serve --help`."""
