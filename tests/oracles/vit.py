"""Write vit.npz: outputs of timm, torchvision and transformers with drawn weights.

    python tests/oracles/vit.py

timm 1.0.31, torchvision 0.29.2, transformers 5.23.0, torch 2.13.0 (CPU), in float64,
stored as float32. transformers runs with the eps of 1e-6 that published weights have.
"""

import pathlib

import numpy as np
import timm.models.vision_transformer as timm_vit
import torch
import torchvision
import transformers
import vit_weights as drawn

FOLDER = pathlib.Path(__file__).parent


def net(library: str, side: int, options: dict) -> torch.nn.Module:
    classes = options.get("classes", drawn.CLASSES)
    sizes = (drawn.WIDTH, drawn.DEPTH, drawn.HEADS, drawn.PATCH)
    width, depth, heads, patch = sizes
    if library == "timm":
        return timm_vit.VisionTransformer(
            img_size=side,
            patch_size=patch,
            embed_dim=width,
            depth=depth,
            num_heads=heads,
            num_classes=classes,
            global_pool=options.get("pool", "token"),
            dynamic_img_size=True,
        )
    if library == "torchvision":
        return torchvision.models.VisionTransformer(
            side, patch, depth, heads, width, 4 * width, num_classes=classes
        )
    config = transformers.ViTConfig(
        hidden_size=width,
        num_hidden_layers=depth,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        image_size=side,
        patch_size=patch,
        num_labels=classes,
        layer_norm_eps=1e-6,
    )
    return transformers.ViTForImageClassification(config)


def main():
    torch.set_default_dtype(torch.float64)
    stored = {}
    for case, (library, drawn_at, side, options) in drawn.CASES.items():
        model = net(library, drawn_at, options).eval()
        state = {
            name: torch.from_numpy(drawn.draw(name, tuple(value.shape))).double()
            for name, value in model.state_dict().items()
        }
        model.load_state_dict(state)
        image = torch.from_numpy(drawn.images(side)).double().permute(0, 3, 1, 2)
        with torch.no_grad():
            out = model((image - 0.5) / 0.5)
        out = out.logits if library == "transformers" else out
        stored[case] = out.float().numpy()
    np.savez_compressed(FOLDER / "vit.npz", **stored)


if __name__ == "__main__":
    main()
