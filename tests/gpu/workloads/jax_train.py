"""Trains a small network with JAX for a fixed number of steps and prints a digest of every parameter's bits."""

import hashlib
import json
import os

# Autotuning may pick other algorithms in each process; then the bits differ without any hook.
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_gpu_autotune_level=0 --xla_gpu_deterministic_ops=true"

import jax
import jax.numpy as jnp
import numpy

WIDTHS = [256, 1024, 1024, 1024, 10]


def main():
    keys = jax.random.split(jax.random.PRNGKey(0), len(WIDTHS))
    parameters = [
        (jax.random.normal(key, (a, b), jnp.float32) / a**0.5, jnp.zeros(b)) for key, a, b in zip(keys, WIDTHS, WIDTHS[1:])
    ]
    data = jax.random.normal(jax.random.PRNGKey(1), (4096, WIDTHS[0]))
    wanted = jax.random.normal(jax.random.PRNGKey(2), (4096, WIDTHS[-1]))

    def loss(parameters):
        x = data
        for weight, bias in parameters[:-1]:
            x = jax.nn.gelu(x @ weight + bias)
        weight, bias = parameters[-1]
        return jnp.mean((x @ weight + bias - wanted) ** 2)

    @jax.jit
    def step(parameters):
        value, gradient = jax.value_and_grad(loss)(parameters)
        return value, jax.tree.map(lambda p, g: p - 0.05 * g, parameters, gradient)

    losses = []
    for _ in range(200):
        value, parameters = step(parameters)
        losses.append(value)
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(parameters):
        digest.update(numpy.asarray(leaf).tobytes())
    device = jax.devices()[0]
    statistics = device.memory_stats() or {}
    print(json.dumps({
        "digest": digest.hexdigest(), "first_loss": float(losses[0]), "last_loss": float(losses[-1]), "version": jax.__version__,
        "platform": device.platform, "bytes_limit": statistics.get("bytes_limit"),
    }), flush=True)


if __name__ == "__main__":
    main()
