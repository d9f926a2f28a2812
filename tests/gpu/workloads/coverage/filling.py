"""Fills a process's memory until it is refused."""

# Sizes of the blocks, largest first.
BLOCKS = (256 << 20, 32 << 20, 2 << 20)
# Enough where nothing limits the process.
MOST = 32 << 30


def fill(held, allocate, refusal, word=""):
    """Adds arrays of `allocate(bytes)` to `held` until it raises `refusal` with that word, the last time for blocks of 2 MiB. Other errors
    are not caught. Returns the refusal as text, `None` without one, and the bytes held."""
    refused = None
    for size in BLOCKS:
        refused = None
        while refused is None and sum(block.nbytes for block in held) < MOST:
            try:
                held.append(allocate(size))
            except refusal as why:
                if word not in str(why):
                    raise
                refused = f"{type(why).__module__}.{type(why).__name__}: {why}"[:300]
    return refused, sum(block.nbytes for block in held)
