"""Marks requests, so that Sluice keeps the GPU with a request that waits for it several times. Runs the same without Sluice."""

import contextlib
import ctypes

HOOK = ctypes.CDLL(None)
BEGIN, END = (getattr(HOOK, name, lambda: None) for name in ("sluice_request_begin", "sluice_request_end"))


@contextlib.contextmanager
def request():
    """From the arrival of a request to its last answer. The thread needs a current CUDA context."""
    BEGIN()
    try:
        yield
    finally:
        END()


def main():
    import torch

    weights = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16)
    state = torch.randn(1, 2048, device="cuda", dtype=torch.bfloat16)
    with request():
        for _ in range(47):
            state = torch.tanh(state @ weights)
            token = int(state.argmax())  # Waits for the GPU; the next launch comes some microseconds later.
    print("last token", token)


if __name__ == "__main__":
    main()
