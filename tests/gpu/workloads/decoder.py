"""The network of torch_decode.py (service) and of torch_model.py (training): a language model of 16 layers, width 2048, 1 G parameters in bf16."""

import torch
import torch.nn.functional as F
from torch import nn

LAYERS, WIDTH, HEADS, VOCABULARY, POSITIONS = 16, 2048, 16, 50_304, 1024


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.split, self.mix = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x, attend):
        """`attend` turns queries, keys and values (batch, heads, length, width of a head) into the attention's result."""
        batch, length, width = x.shape
        query, key, value = self.split(self.before(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = x + self.mix(attend(query, key, value).transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.between(x))))


class Decoder(nn.Module):
    """Answers with the logits of all positions, or of the last one."""

    def __init__(self, layers=LAYERS, width=WIDTH, heads=HEADS, vocabulary=VOCABULARY):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(POSITIONS, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.last, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens, positions, attends, last_only=False):
        x = self.tokens(tokens) + self.positions(positions)
        for layer, attend in zip(self.layers, attends):
            x = layer(x, attend)
        return self.head(self.last(x[:, -1:] if last_only else x))


def make(device, **sizes):
    """The network with random weights, the same in each process."""
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(device):
        model = Decoder(**sizes)
    torch.set_default_dtype(torch.float32)
    return model


def causal(query, key, value):
    return F.scaled_dot_product_attention(query, key, value, is_causal=True)


def training(batch, length=1024, device="cuda", **sizes):
    """A step of training with synthetic data: `batch` texts of `length` tokens."""
    model = make(device, **sizes)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    text = torch.randint(0, model.tokens.num_embeddings, (batch, length + 1), device=device)
    positions, attends = torch.arange(length, device=device), [causal] * len(model.layers)

    def step():
        optimizer.zero_grad(set_to_none=True)
        logits = model(text[:, :-1], positions, attends)
        loss = F.cross_entropy(logits.float().flatten(0, 1), text[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        return loss

    return step


class Session:
    """A request's state on the GPU, at fixed addresses, so that a graph can contain a token: the cache, the position, the last token."""

    def __init__(self, model, room, device="cuda"):
        heads = model.layers[0].heads
        width = model.positions.embedding_dim // heads
        self.model, self.room, self.scale = model, room, width**-0.5
        self.keys, self.values = (torch.zeros(len(model.layers), heads, room, width, dtype=torch.bfloat16, device=device) for _ in range(2))
        self.slots, self.position = torch.arange(room, device=device), torch.zeros(1, dtype=torch.long, device=device)
        self.hidden = torch.full((1,), float("-inf"), dtype=torch.bfloat16, device=device)
        self.seen = torch.zeros(1, dtype=torch.bfloat16, device=device)
        self.token = torch.zeros(1, dtype=torch.long, device=device)

    def prefill(self, prompt):
        """Reads the prompt; afterwards `token` is the answer's first token."""
        length = prompt.shape[0]

        def attend_in(number):
            def attend(query, key, value):
                self.keys[number, :, :length].copy_(key[0])
                self.values[number, :, :length].copy_(value[0])
                return causal(query, key, value)
            return attend

        attends = [attend_in(number) for number in range(len(self.model.layers))]
        logits = self.model(prompt[None], self.slots[:length], attends, last_only=True)
        self.token.copy_(logits[0, -1].argmax(-1, keepdim=True))
        self.position.fill_(length)

    def step(self):
        """Replaces `token` by the one that follows it."""
        mask = torch.where(self.slots > self.position, self.hidden, self.seen)

        def attend_in(number):
            def attend(query, key, value):
                keys, values = self.keys[number], self.values[number]
                keys.index_copy_(1, self.position, key[0])
                values.index_copy_(1, self.position, value[0])
                scores = torch.baddbmm(mask, query[0], keys.transpose(1, 2), alpha=self.scale)
                return torch.bmm(scores.softmax(-1), values)[None]
            return attend

        attends = [attend_in(number) for number in range(len(self.model.layers))]
        logits = self.model(self.token[None], self.position, attends)
        self.token.copy_(logits[0, -1].argmax(-1, keepdim=True))
        self.position.add_(1)
