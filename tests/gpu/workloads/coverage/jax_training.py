"""A jitted training step in JAX. JAX takes a part of the GPU's memory when it starts: of the limit, if it sees one."""

import os

# Autotuning may pick other algorithms in each process; then the bits differ without any hook.
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_gpu_autotune_level=0 --xla_gpu_deterministic_ops=true"

import jax
import jax.numpy as jnp
import numpy

WIDTHS = [512, 2048, 2048, 2048, 16]
BLOCK, MOST = 32 << 20, 32 << 30


def loss(parameters, data, wanted):
    for weight, bias in parameters[:-1]:
        data = jax.nn.gelu(data @ weight + bias)
    weight, bias = parameters[-1]
    return jnp.mean((data @ weight + bias - wanted) ** 2)


@jax.jit
def train(parameters, data, wanted):
    gradient = jax.grad(loss)(parameters, data, wanted)
    return jax.tree.map(lambda old, change: old - 0.05 * change, parameters, gradient)


class Training:
    def __init__(self, _device):
        keys = jax.random.split(jax.random.PRNGKey(0), len(WIDTHS))
        self.parameters = [(jax.random.normal(key, (a, b), jnp.float32) / a**0.5, jnp.zeros(b)) for key, a, b in zip(keys, WIDTHS, WIDTHS[1:])]
        self.data = jax.random.normal(jax.random.PRNGKey(1), (4096, WIDTHS[0]))
        self.wanted = jax.random.normal(jax.random.PRNGKey(2), (4096, WIDTHS[-1]))
        self.held, self.refused = [], None
        device = jax.devices()[0]
        self.about = {"version": jax.__version__, "platform": device.platform, "total_memory": (device.memory_stats() or {}).get("bytes_limit")}

    def step(self):
        self.parameters = train(self.parameters, self.data, self.wanted)

    def wait(self):
        jax.block_until_ready(self.parameters)

    def results(self):
        return [(str(number), numpy.asarray(leaf).tobytes()) for number, leaf in enumerate(jax.tree.leaves(self.parameters))]

    def fill(self):
        """JAX waits some seconds for memory before it refuses. Its pool does not grow, so it refuses once."""
        while self.refused is None and BLOCK * len(self.held) < MOST:
            try:
                self.held.append(jax.block_until_ready(jnp.ones(BLOCK, jnp.uint8)))
            except RuntimeError as why:
                if "RESOURCE_EXHAUSTED" not in str(why):
                    raise
                self.refused = f"{type(why).__module__}.{type(why).__name__}: {why}"[:300]
        return self.refused, BLOCK * len(self.held)

    def recover(self):
        self.held.clear()
