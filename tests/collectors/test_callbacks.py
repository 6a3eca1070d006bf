"""The callbacks in real training loops of their libraries; skipped where these are absent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

COUNTS = {"skip": 1, "settle": 1, "unprofiled": 3, "warmup": 1, "active": 2, "after": 2}
TOTAL_STEPS = 14  # more than the schedule needs
OPTIONS: dict[str, Any] = {**COUNTS, "calibrate": False, "sample_gpus": False}


def phases(folder: Path) -> dict[str, int]:
    """Return how many steps of each phase the recording of rank 0 holds."""
    lines = (folder / "steps_rank0.jsonl").read_text().splitlines()
    found: dict[str, int] = {}
    for row in map(json.loads, lines):
        if row["kind"] == "step":
            found[row["phase"]] = found.get(row["phase"], 0) + 1
    return found


class Pairs(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"values": torch.full((4,), float(index))}


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, values: torch.Tensor, **_: Any) -> dict[str, torch.Tensor]:
        return {"loss": self.layer(values).square().mean()}


@pytest.mark.parametrize("accumulation", [1, 2])
def test_hugging_face_trainer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, accumulation: int
) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    from trace_analyzer.collectors.hf_callback import RecordCallback

    monkeypatch.chdir(tmp_path)
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path / "out"),
        max_steps=TOTAL_STEPS,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=accumulation,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        remove_unused_columns=False,
        disable_tqdm=True,
    )
    callback = RecordCallback(out=tmp_path / "bundle", **OPTIONS)
    trainer = transformers.Trainer(
        model=Small(), args=arguments, train_dataset=Pairs(), callbacks=[callback]
    )
    trainer.train()
    found = phases(tmp_path / "bundle")
    assert found["unprofiled"] == 5
    assert found["profiled"] == 2
    assert (tmp_path / "bundle" / "rank0.pt.trace.json.gz").exists()
    assert (tmp_path / "bundle" / "bundle.json").exists()
    assert callback.recorder is None


def lightning_trainer(folder: Path, accumulation: int) -> tuple[Any, Any, Any]:
    lightning = pytest.importorskip("lightning.pytorch")
    from trace_analyzer.collectors.lightning_callback import RecordCallback

    class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.inner = Small()
            self.fails_at = -1

        def training_step(self, batch: dict[str, torch.Tensor], index: int) -> torch.Tensor:
            if index == self.fails_at:
                raise ArithmeticError("as asked")
            loss: torch.Tensor = self.inner(**batch)["loss"]
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    callback = RecordCallback(out=folder / "bundle", **OPTIONS)
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=1,
        max_steps=TOTAL_STEPS,
        accumulate_grad_batches=accumulation,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[callback],
    )
    return trainer, Module(), callback


@pytest.mark.parametrize("accumulation", [1, 2])
def test_lightning_trainer(tmp_path: Path, accumulation: int) -> None:
    trainer, module, callback = lightning_trainer(tmp_path, accumulation)
    trainer.fit(module, torch.utils.data.DataLoader(Pairs(), batch_size=2))
    found = phases(tmp_path / "bundle")
    assert found["unprofiled"] == 5
    assert found["profiled"] == 2
    assert (tmp_path / "bundle" / "rank0.pt.trace.json.gz").exists()
    assert callback.recorder is None


def test_lightning_failure_keeps_what_there_is(tmp_path: Path) -> None:
    trainer, module, callback = lightning_trainer(tmp_path, 1)
    module.fails_at = 4
    with pytest.raises(ArithmeticError):
        trainer.fit(module, torch.utils.data.DataLoader(Pairs(), batch_size=2))
    assert phases(tmp_path / "bundle")["unprofiled"] >= 1
    assert callback.recorder is None
