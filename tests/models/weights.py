"""Random weights for the small models."""

import torch


def randomise(model: torch.nn.Module, generator: torch.Generator, spread: float) -> None:
    """Weights that tell texts apart: the usual small ones would make all vectors nearly the same.

    `spread` is the standard deviation of a linear layer's output for inputs of standard deviation 1.
    """
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if "LayerNorm.weight" in name:
                parameter.copy_(1 + 0.2 * noise)
            elif name.endswith("bias"):
                parameter.copy_(0.1 * noise)
            elif "embeddings" in name:
                parameter.copy_(noise * (1.0 if "word" in name else 0.3))
            else:
                parameter.copy_(noise * spread / parameter.shape[1] ** 0.5)
