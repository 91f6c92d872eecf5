"""TRL's SFTTrainer takes the loader as it is: it sets an entry of its own in each batch, and trains on its rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millstream import BPETokenizer, ConversationDataLoader
from oracles.asked import asked

pytestmark = pytest.mark.oracle
trl, transformers, tokenizers, datasets = (asked(name) for name in ("trl", "transformers", "tokenizers", "datasets"))
CHATS = [{"messages": [{"role": "user", "content": "Run?"}, {"role": "assistant", "content": "It runs."}]}] * 16


@pytest.mark.parametrize("packing", [False, True])
def test_sft_trains_on_the_batches_of_a_loader(tmp_path: Path, packing: bool) -> None:
    seen: list[Any] = []
    tokenizer = BPETokenizer.train(["Does the mill run? It runs."], vocab_size=280)
    loader = ConversationDataLoader(
        CHATS, tokenizer=tokenizer, chat_template="chatml", add_control_tokens=True, max_length=64, batch_size=2,
        packing=packing, labels="same", framework="torch",
    )  # fmt: skip

    class Sft(trl.SFTTrainer):  # type: ignore[misc, name-defined]
        def get_train_dataloader(self) -> ConversationDataLoader:
            return loader

        def compute_loss(self, model: Any, inputs: Any, *given: Any, **named: Any) -> Any:
            loss = super().compute_loss(model, inputs, *given, **named)
            seen.append(inputs)
            return loss

    config = transformers.LlamaConfig(
        vocab_size=400, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=1,
        num_key_value_heads=1, max_position_embeddings=128,
    )  # fmt: skip
    arguments = trl.SFTConfig(
        str(tmp_path), max_steps=2, dataset_kwargs={"skip_prepare_dataset": True}, report_to=[], use_cpu=True,
        bf16=False, save_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    letters = tokenizers.Tokenizer(tokenizers.models.BPE({"a": 0, "<e>": 1, "<p>": 2}, []))
    with loader:
        Sft(
            model=transformers.LlamaForCausalLM(config),
            processing_class=transformers.PreTrainedTokenizerFast(
                tokenizer_object=letters, eos_token="<e>", pad_token="<p>"
            ),
            train_dataset=datasets.Dataset.from_list([{"input_ids": [1], "labels": [1]}]),
            args=arguments,
        ).train()

    assert [batch["use_cache"] for batch in seen] == [False, False]
    assert [batch.metadata["step"] for batch in seen] == [0, 1]
