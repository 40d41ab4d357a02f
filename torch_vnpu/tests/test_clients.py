"""Libraries that know torch_npu train on this backend, and so do those that know CUDA. Skipped where they are missing."""

import importlib.util
from typing import Any

import pytest

pytestmark = pytest.mark.clients


def needs(*names: str) -> pytest.MarkDecorator:
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)} (requirements-dev.txt)")


OFFLINE = {"HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "ignore", "TQDM_DISABLE": "1", "ACCELERATE_USE_CPU": "false"}

ACCELERATE = """
    import torch
    import torch.nn.functional as F
    {before}
    from accelerate import Accelerator
    from accelerate.utils import is_npu_available, set_seed

    print("npu available:", is_npu_available())
    set_seed(0)
    accelerator = Accelerator(mixed_precision="fp16")
    print(accelerator.device.type)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = [(x, x.sum(0, keepdim=True)) for x in torch.randn(64, 4)]
    model, optimizer, loader = accelerator.prepare(model, optimizer, torch.utils.data.DataLoader(data, batch_size=8))
    losses = []
    for _ in range(5):
        for x, y in loader:
            assert x.device.type == "npu"
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
        losses.append(loss.item())
    print("learned:", losses[-1] < losses[0] / 4)
"""
ALIAS = "import torch_vnpu.compat; torch_vnpu.compat.install()"
TRANSFER = "import torch_vnpu.contrib.transfer_to_npu"


@needs("accelerate")
@pytest.mark.parametrize(("before", "found"), [(ALIAS, True), (TRANSFER, False)], ids=["torch_npu", "cuda"])
def test_a_training_loop_of_accelerate(fresh: Any, before: str, found: bool) -> None:
    done = fresh(ACCELERATE.format(before=before), **OFFLINE)
    assert done.code == 0, done.err
    assert done.lines == [f"npu available: {found}", "npu", "learned: True"]


@needs("accelerate", "transformers", "peft")
def test_a_trainer_of_transformers_and_a_lora_of_peft(fresh: Any) -> None:
    done = fresh(
        """
        import tempfile
        import torch
        import torch_vnpu.compat
        torch_vnpu.compat.install()
        from peft import LoraConfig, get_peft_model
        from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
        from transformers.utils import is_torch_npu_available

        print("npu available:", is_torch_npu_available())
        torch.manual_seed(0)
        config = LlamaConfig(
            vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
            num_key_value_heads=1, max_position_embeddings=32,
        )
        rows = [torch.arange(i, i + 8) % 32 for i in range(64)]

        def train(model, attention, steps):
            model.set_attn_implementation(attention)
            with tempfile.TemporaryDirectory() as folder:
                arguments = TrainingArguments(
                    output_dir=folder, max_steps=steps, per_device_train_batch_size=8, learning_rate=1e-2, report_to=[],
                    logging_steps=1, save_strategy="no", disable_tqdm=True, bf16=True,
                )
                trainer = Trainer(model=model, args=arguments, train_dataset=[{"input_ids": r, "labels": r} for r in rows])
                trainer.log = lambda logs, *rest, **more: losses.append(logs["loss"]) if "loss" in logs else None
                losses = []
                trainer.train()
            return str(trainer.args.device), {p.device.type for p in model.parameters()}, losses

        model = LlamaForCausalLM(config)
        device, places, losses = train(model, "sdpa", 20)
        print(device, places, losses[-1] < losses[0] - 0.3)

        adapted = get_peft_model(LlamaForCausalLM(config), LoraConfig(r=4, target_modules=["q_proj", "v_proj"]))
        before = {name: parameter.detach().clone() for name, parameter in adapted.named_parameters()}
        device, places, losses = train(adapted, "sdpa", 5)
        changed = [name for name, parameter in adapted.named_parameters() if not torch.equal(parameter.cpu(), before[name])]
        print(device, places, len(changed), all("lora_" in name for name in changed))
    """,
        **OFFLINE,
    )
    assert done.code == 0, done.err
    assert done.lines[0] == "npu available: True"
    assert done.lines[-2:] == ["npu:0 {'npu'} True", "npu:0 {'npu'} 4 True"]
