"""Latency-critical and best-effort GPU tasks in one process."""
