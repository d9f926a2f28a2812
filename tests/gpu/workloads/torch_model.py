"""PyTorch workloads behind window.py: resnet50 (training), compiled (a torch.compile transformer, training), graph (CUDA graph replay),
transformer (the network of torch_decode.py, training with texts of 1024 tokens), lora (adapters of a frozen Llama of transformers, training),
light (kernels that take the GPU and little power)."""

import argparse

import torch

import decoder
import light
import window


def resnet50(batch):
    """Training as in docs/reference/gpu.md §12: bf16 autocast, channels_last, synthetic data."""
    import torchvision

    torch.backends.cudnn.benchmark = True
    model = torchvision.models.resnet50().cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images = torch.randn(batch, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (batch,), device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()

    return step, 2


def compiled(batch):
    """Training of a small transformer through torch.compile: most of its kernels are Triton's, launched with cuLaunchKernel(Ex)."""
    layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, dropout=0.0, activation="gelu", batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False).cuda()
    fast = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.randn(batch, 256, 512, device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = fast(tokens).square().mean()
        loss.backward()
        optimizer.step()

    return step, 2


def graph(batch):
    """Replay of a captured fp16 ResNet-50 inference."""
    import torchvision

    model = torchvision.models.resnet50().cuda().half().eval().to(memory_format=torch.channels_last)
    images = torch.randn(batch, 3, 224, 224, device="cuda", dtype=torch.half).to(memory_format=torch.channels_last)
    side = torch.cuda.Stream()
    with torch.inference_mode():
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                model(images)
        torch.cuda.current_stream().wait_stream(side)
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            model(images)
    return captured.replay, 16


def transformer(batch):
    return decoder.training(batch), 2


def lora(batch):
    import llama

    return llama.training(batch), 2


def sleeping(batch):
    return light.steps(torch), 2


WORKLOADS = {"resnet50": (resnet50, 128), "compiled": (compiled, 64), "graph": (graph, 1), "transformer": (transformer, 8), "lora": (lora, 8), "light": (sleeping, 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--staged", action="store_true", help="say when the libraries are loaded, and wait for a line before anything else")
    parser.add_argument("--own-stream", action="store_true", help="work on a stream of its own instead of the default stream, which XSched does not schedule")
    options = parser.parse_args()
    if options.workload == "lora":
        # Loads transformers, which takes seconds.
        import llama  # noqa: F401
    if options.staged:
        window.stand_by(torch)
    if options.own_stream:
        torch.cuda.set_stream(torch.cuda.Stream())
    torch.manual_seed(0)
    build, batch = WORKLOADS[options.workload]
    batch = options.batch or batch
    step, depth = build(batch)
    for _ in range(30):
        step()
    torch.cuda.synchronize()
    about = {
        "workload": options.workload, "batch": batch, "torch": torch.__version__, "device": torch.cuda.get_device_name(),
        "memory_reserved": torch.cuda.memory_reserved(),
    }
    window.serve(torch, step, depth, about)


if __name__ == "__main__":
    main()
