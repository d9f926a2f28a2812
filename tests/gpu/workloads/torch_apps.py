"""What programs do with PyTorch (cuBLAS, cuDNN, a training, a language model that is trained and asked), and a digest of every result's bits."""

import hashlib
import json
import os

# Before CUDA is there.
os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"

import torch


def products():
    found = {}
    for name in ("float64", "float32", "bfloat16"):
        a, b = (torch.randn(1024, 1024, device="cuda").to(getattr(torch, name)) for _ in range(2))
        for _ in range(20):
            a = (a @ b) / 32
        found[name] = a
    return found


def convolutions():
    image = torch.randn(16, 32, 64, 64, device="cuda", requires_grad=True)
    layer = torch.nn.Conv2d(32, 64, 3, padding=1).cuda()
    layer(image).square().mean().backward()
    return {"image": image.grad, "weight": layer.weight.grad}


def trained(model, steps, loss):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=True)
        value = loss()
        value.backward()
        optimizer.step()
    return {"loss": value, **{name: tensor for name, tensor in model.state_dict().items()}}


class Mean(torch.nn.Module):
    """The mean over a picture."""

    def forward(self, x):
        return x.mean((2, 3), keepdim=True)


def pictures():
    import torchvision

    model = torchvision.models.resnet18()
    # These two have gradients that add in any order.
    model.maxpool, model.avgpool = torch.nn.Conv2d(64, 64, 3, stride=2, padding=1), Mean()
    model.cuda()
    images, labels = torch.randn(16, 3, 112, 112, device="cuda"), torch.randint(0, 1000, (16,), device="cuda")
    return trained(model, 20, lambda: torch.nn.functional.cross_entropy(model(images), labels))


def language():
    import transformers

    shape = transformers.GPT2Config(n_layer=4, n_head=4, n_embd=256, vocab_size=1000, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    model = transformers.GPT2LMHeadModel(shape).cuda()
    tokens = torch.randint(1, 1000, (8, 64), device="cuda")
    found = trained(model, 10, lambda: model(input_ids=tokens, labels=tokens).loss)
    model.eval()
    answer = model.generate(tokens[:1, :8], attention_mask=torch.ones_like(tokens[:1, :8]), max_new_tokens=16, do_sample=False, pad_token_id=0)
    return {"answer": answer, **found}


def digest(tensors):
    told = hashlib.sha256()
    for name in sorted(tensors):
        # NumPy has no bfloat16.
        bits = tensors[name].detach().reshape(-1).contiguous().cpu().view(torch.uint8)
        told.update(name.encode() + bits.numpy().tobytes())
    return told.hexdigest()


def main():
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    digests, skipped = {}, []
    for part in (products, convolutions, pictures, language):
        torch.manual_seed(0)
        try:
            digests[part.__name__] = digest(part())
        # A library that is not there, or cannot do it, is the same without the hook.
        except (ImportError, RuntimeError, TypeError, AttributeError) as why:
            skipped.append(f"{part.__name__}: {type(why).__name__}: {why}"[:300])
    free, total = torch.cuda.mem_get_info()
    print(json.dumps({"digest": digests, "skipped": skipped, "version": torch.__version__, "total": total}), flush=True)


if __name__ == "__main__":
    main()
