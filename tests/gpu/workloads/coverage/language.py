"""Language models of transformers with random weights: generation (Llama) and training (GPT-2)."""

import torch
import transformers

import torch_common

VOCABULARY = 8192


class Generation(torch_common.Workload):
    """Greedy generation; a step is one call of `generate`."""

    NEW_TOKENS = 16
    # Without gradients nothing adds in any order.
    WARN_ONLY = True

    def build(self):
        shape = transformers.LlamaConfig(
            vocab_size=VOCABULARY, hidden_size=1024, intermediate_size=2816, num_hidden_layers=8, num_attention_heads=16, num_key_value_heads=8,
            max_position_embeddings=512, bos_token_id=1, eos_token_id=None, pad_token_id=0)
        self.model = transformers.LlamaForCausalLM(shape).to(self.device, dtype=torch.bfloat16).eval()
        self.prompts = torch.randint(2, VOCABULARY, (8, 4, 64), device=self.device)
        self.answers, self.done = [], 0

    def step(self):
        prompt = self.prompts[self.done % len(self.prompts)]
        self.done += 1
        answer = self.model.generate(
            prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=self.NEW_TOKENS, do_sample=False, use_cache=True)
        # Each prompt has one answer, however often it is asked.
        self.answers = [*self.answers, answer][-len(self.prompts):]

    def results(self):
        return [(str(number), torch_common.bits(answer)) for number, answer in enumerate(self.answers)]


class Training(torch_common.Workload):
    """GPT-2, AdamW, bf16 autocast."""

    def build(self):
        small = self.device.type == "cpu"
        shape = transformers.GPT2Config(
            vocab_size=VOCABULARY, n_positions=256, n_embd=512, n_layer=1 if small else 8, n_head=8, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
        self.model = transformers.GPT2LMHeadModel(shape).to(self.device).train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.texts = torch.randint(0, VOCABULARY, (8, 2 if small else 16, 256), device=self.device)
        self.done = 0

    def step(self):
        text = self.texts[self.done % len(self.texts)]
        self.done += 1
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            loss = self.model(input_ids=text, labels=text).loss
        loss.backward()
        self.optimizer.step()
