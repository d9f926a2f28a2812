"""Language models of transformers with random weights: that of torch_generate.py (service), and a training of adapters (LoRA) for torch_model.py."""

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

VOCABULARY = 32_000
SERVICE_LAYERS, TRAINING_LAYERS = 4, 16
RANK, LENGTH = 16, 512


def make(layers):
    """A Llama of width 2048 in bf16, the same in each process: 180 M parameters and 48 M a layer."""
    shape = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=2048, intermediate_size=5632, num_hidden_layers=layers, num_attention_heads=16, num_key_value_heads=8,
        max_position_embeddings=8192, bos_token_id=1, eos_token_id=None, pad_token_id=0)
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = LlamaForCausalLM(shape)
    return model.to(dtype=torch.bfloat16)


class Adapter(nn.Module):
    """A frozen linear layer, to which the product of two thin matrices is added. Only these are trained."""

    def __init__(self, frozen):
        super().__init__()
        like = {"bias": False, "device": frozen.weight.device, "dtype": frozen.weight.dtype}
        self.frozen, self.down, self.up = frozen, nn.Linear(frozen.in_features, RANK, **like), nn.Linear(RANK, frozen.out_features, **like)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.frozen(x) + self.up(self.down(x))


def training(batch):
    """A step: `batch` texts of 512 tokens, AdamW on adapters of rank 16 for each layer's queries and values."""
    model = make(TRAINING_LAYERS).train().requires_grad_(False)
    for layer in model.model.layers:
        layer.self_attn.q_proj, layer.self_attn.v_proj = Adapter(layer.self_attn.q_proj), Adapter(layer.self_attn.v_proj)
    optimizer = torch.optim.AdamW([weights for weights in model.parameters() if weights.requires_grad], lr=1e-4)
    text = torch.randint(2, VOCABULARY, (batch, LENGTH), device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=True)
        model(input_ids=text, labels=text, use_cache=False).loss.backward()
        optimizer.step()

    return step
