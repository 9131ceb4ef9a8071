"""Make a tiny Llama with random weights and a tokenizer of its own: `python make_model.py FOLDER`.

Run by tests/vllm/setup.py with the interpreter that has vLLM, so it imports nothing of this repository. The model
says nothing sensible; what matters is that a real vLLM loads and serves it within seconds on any CPU.
"""

from __future__ import annotations

import sys
from pathlib import Path
from pydoc_data import topics

import torch
from tokenizers import ByteLevelBPETokenizer
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SEED = 20
VOCABULARY = 1024
CONTEXT = 2048  # tokens
SPECIAL = {"bos_token": "<|begin|>", "eos_token": "<|end|>", "pad_token": "<|pad|>"}
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Return a byte-level BPE tokenizer trained on the help texts that every CPython carries."""
    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator(topics.topics.values(), vocab_size=VOCABULARY, special_tokens=list(SPECIAL.values()))
    return PreTrainedTokenizerFast(
        tokenizer_object=trained._tokenizer, chat_template=CHAT_TEMPLATE, model_max_length=CONTEXT, **SPECIAL
    )


def make_model(tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """Return two layers of random weights, about 0.6 million parameters, that never end an answer by themselves."""
    torch.manual_seed(SEED)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=128,
            intermediate_size=256,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=CONTEXT,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )
    with torch.no_grad():
        # A zero row gives the logit 0, which is never the largest of 1,024 random ones: a greedy answer
        # runs to max_tokens, as a measurement wants it.
        model.lm_head.weight[[tokenizer.convert_tokens_to_ids(token) for token in SPECIAL.values()]] = 0
    return model.to(torch.bfloat16)


def main(folder: Path) -> None:
    tokenizer = make_tokenizer()
    model = make_model(tokenizer)
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)
    print(f"{sum(weight.numel() for weight in model.parameters())} parameters in {folder}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
