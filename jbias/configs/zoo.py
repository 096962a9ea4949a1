"""The ImageNet models of the bias study, as the files that their authors publish.

Source: Gavrikov and Keuper, CVPR 2024, https://arxiv.org/abs/2404.01509: 48 ResNet-50s,
and the vision transformers of its appendix. Identifiers, mean and std are those of
https://github.com/paulgavrikov/biases_vs_generalization at 9168ac8, code/model_zoo.py.
Its MAE is run with timm's default mean and std of 0.5, though it was trained with
ImageNet's, and so is it here, for the study's numbers.

    from jbias.configs import zoo
    entry = zoo.find("models/resnet50_l2_eps3.ckpt")
    options = entry.options("models")
    module, variables = models.load("models/resnet50_l2_eps3.ckpt", entry.model, **options)
"""

import os
import pathlib
import types
from collections.abc import Mapping
from typing import Any, NamedTuple

from jbias.models import states

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
HALF = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
NONE = ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
_ENDS = (".pth.tar", *states.SUFFIXES)  # Not a path's suffix: identifiers have dots.
# What files are called in folders of their own.
_PLAIN = frozenset(("model.safetensors", "pytorch_model.bin"))


class Entry(NamedTuple):
    """A published model."""

    id: str
    name: str  # As the paper's figures have it.
    category: str
    files: tuple[str, ...]  # Names under which its authors publish it.
    model: str = "resnet50"  # A key of jbias.models.MODELS.
    constants: tuple[tuple[float, ...], tuple[float, ...]] = IMAGENET  # Mean and std.
    heads: tuple[str, ...] = ()  # Of the linear layer, where that is a file of its own.
    norm: str = ""  # Of adversarial training: "l2" or "linf",
    eps: float | None = None  # and its budget; in 1/255 for "linf".
    where: str = ""  # Where it is published.
    # Of the network in such a file, where other files have the same name.
    needs: Mapping[str, Any] = types.MappingProxyType({})

    def options(self, folder: str | os.PathLike) -> dict[str, Any]:
        """What `jbias.models.load` takes beside path and model; the head from a folder.

        ValueError where the head is not there.
        """
        mean, std = self.constants
        if not self.heads:
            return {"mean": mean, "std": std}
        for name in self.heads:
            path = pathlib.Path(folder) / name
            if path.is_file():
                return {"mean": mean, "std": std, "head": path}
        raise ValueError(
            f"configs.zoo: {self.id} needs its linear layer in {self.heads[0]} in "
            f"{os.fspath(folder)}, got none; take it from {self.where}"
        )


_MADRY = "https://huggingface.co/madrylab/robust-imagenet-models"
_TIMM = "https://github.com/huggingface/pytorch-image-models/releases"
_DRIVE = "https://drive.google.com/uc?id="
_META = "https://dl.fbaipublicfiles.com/"
_VISION = "https://download.pytorch.org/models/"
_GEIRHOS = "https://github.com/rgeirhos/texture-vs-shape"
_VIT = "https://github.com/google-research/vision_transformer"


def _robust(norm: str, eps: str) -> Entry:
    unit = "/255" if norm == "linf" else ""
    return Entry(
        f"robust_resnet50_{norm}_eps{eps}",
        f"PGD-AT ({norm}, eps={eps}{unit})",
        "adversarial_training",
        (f"resnet50_{norm}_eps{eps}.ckpt",),
        norm=norm,
        eps=float(eps),
        where=_MADRY,
    )


def _drive(id: str, name: str, category: str, file: str, **others: Any) -> Entry:
    """From a drive that says no file name: the study saves it under the identifier."""
    return Entry(id, name, category, (), where=_DRIVE + file, **others)


def _recipe(id: str, name: str, file: str) -> Entry:
    return Entry(id, name, "training_recipes", (file,), where=_TIMM)


def _vit(kind: str, name: str, file: str, constants=HALF, **others: Any) -> Entry:
    id = f"vit_base_patch16_224.{kind}"
    return Entry(
        id, name, "vision_transformers", (file,), "vit_base16", constants, **others
    )


_FINETUNED = (
    "resnet50_finetune_60_epochs_lr_decay_after_30_start_resnet50_train_45_epochs_"
    "combined_IN_SF-ca06340c.pth.tar"
)
_AUGMENTED, _CONTRASTIVE, _STYLIZED = "augmentation", "contrastive", "stylized"

# The 48 of the paper's figures.
STUDY: tuple[Entry, ...] = (
    Entry(
        *("tv_resnet50", "Original Baseline", "baseline"),
        ("resnet50-19c8e357.pth", "resnet50-0676ba61.pth"),
        where=_VISION,
    ),
    *(
        _robust("l2", eps)
        for eps in ("0", "0.01", "0.03", "0.05", "0.1", "0.25", "0.5", "1", "3", "5")
    ),
    *(_robust("linf", eps) for eps in ("0.5", "1.0", "2.0", "4.0", "8.0")),
    _drive(
        *("resnet50_augmix_180ep", "AugMix (180ep)", _AUGMENTED),
        "1z-1V3rdFiwqSECz7Wkmn4VJVefJGJGiF",
    ),
    _drive(
        *("resnet50_deepaugment", "DeepAugment", _AUGMENTED),
        "1DPRElQnBG66nd7GUphVm1t-5NroL7t7k",
    ),
    _drive(
        *("resnet50_deepaugment_augmix", "DeepAugment+AugMix", _AUGMENTED),
        "1QKmc_p6-qDkh51WvsaS9HKFv8bX5jLnP",
    ),
    Entry(
        "resnet50_diffusionnoise_fixed_nonoise",
        "Noise Training (clean eval)",
        _AUGMENTED,
        ("resnet50_diffusionnoise_nonorm_last.pth",),
        constants=NONE,
        where="https://huggingface.co/paulgavrikov/resnet50.in1k_diffusionnoise_90ep",
    ),
    _drive(
        *("resnet50_noisymix", "NoisyMix", _AUGMENTED),
        "1Na79fzPZ0Azg01h6kGn1Xu5NoWOElSuG",
    ),
    _drive(
        *("resnet50_opticsaugment", "OpticsAugment", _AUGMENTED),
        "1y0MSlVfzZBKZQEiZF2FCOmsk-91miIHR",
    ),
    Entry(
        *("resnet50_prime", "PRIME", _AUGMENTED),
        ("ResNet50_ImageNet_PRIME_noJSD.ckpt",),
        where="https://zenodo.org/record/5801872",
    ),
    _drive(
        *("resnet50_pixmix_180ep", "PixMix (180ep)", _AUGMENTED),
        "1cgKYXDym3wgquf-4hwr_Ra3qje6GNHPH",
    ),
    _drive(
        *("resnet50_pixmix_90ep", "PixMix (90ep)", _AUGMENTED),
        "1_i45yvC88hos50QjkoD97OgbDGreKdp9",
    ),
    _drive(
        *("resnet50_tsbias_sbias", "Shape Bias Augmentation", _AUGMENTED),
        "1p0fZ9rU-J1v943tA7PlNMLuDXk_1Iy3K",
    ),
    _drive(
        *("resnet50_tsbias_tbias", "Texture Bias Augmentation", _AUGMENTED),
        "1tFy2Q28rAqqreaS-27jifpyPzlohKDPH",
    ),
    _drive(
        *(
            "resnet50_tsbias_debiased",
            "Texture/Shape Debiased Augmentation",
            _AUGMENTED,
        ),
        "1r-OSfTtrlFhB9GPiQXUE1h6cqosaBePw",
    ),
    Entry(
        *("resnet50_dino", "DINO V1", _CONTRASTIVE, ("dino_resnet50_pretrain.pth",)),
        heads=("dino_resnet50_linearweights.pth",),
        where=_META + "dino/dino_resnet50_pretrain/",
    ),
    *(
        Entry(
            f"resnet50_moco_v3_{epochs}ep",
            f"MoCo V3 ({epochs}ep)",
            _CONTRASTIVE,
            (f"linear-{epochs}ep.pth.tar",),
            where=_META + f"moco-v3/r-50-{epochs}ep/",
        )
        for epochs in (1000, 100, 300)
    ),
    _drive(
        *("resnet50_simclrv2", "SimCLRv2", _CONTRASTIVE),
        "1fDaMhujPnxo4SYOe4asPqCKQ3XB_sZvj",
        constants=NONE,
    ),
    Entry(
        *("resnet50_swav", "SwAV", _CONTRASTIVE, ("swav_800ep_pretrain.pth.tar",)),
        heads=("swav_800ep_eval_linear.pth.tar",),
        where=_META + "deepcluster/",
    ),
    _drive(
        *("resnet50_frozen_random", "Frozen Random Filters", "freezing"),
        "1IT65JJauql-Jdw-0AjAhEGGApGMVx-VE",
    ),
    Entry(
        *("resnet50_trained_on_SIN", "ShapeNet: SIN Training", _STYLIZED),
        ("resnet50_train_60_epochs-c8e5653e.pth.tar",),
        where=_GEIRHOS,
    ),
    Entry(
        *("resnet50_trained_on_SIN_and_IN", "ShapeNet: SIN+IN Training", _STYLIZED),
        ("resnet50_train_45_epochs_combined_IN_SF-2a0d100e.pth.tar",),
        where=_GEIRHOS,
    ),
    Entry(
        "resnet50_trained_on_SIN_and_IN_then_finetuned_on_IN",
        "ShapeNet: SIN+IN Training + FT",
        _STYLIZED,
        (_FINETUNED,),
        where=_GEIRHOS,
    ),
    _recipe("resnet50.a1_in1k", "timm (A1)", "resnet50_a1_0-14fe96d1.pth"),
    _recipe("resnet50.a1h_in1k", "timm (A1H)", "resnet50_a1h2_176-001a1197.pth"),
    _recipe("resnet50.a2_in1k", "timm (A2)", "resnet50_a2_0-a2746f79.pth"),
    _recipe("resnet50.a3_in1k", "timm (A3)", "resnet50_a3_0-59cae1ef.pth"),
    _recipe("resnet50.b1k_in1k", "timm (B1K)", "resnet50_b1k-532a802a.pth"),
    _recipe("resnet50.b2k_in1k", "timm (B2K)", "resnet50_b2k-1ba180c1.pth"),
    _recipe("resnet50.c1_in1k", "timm (C1)", "resnet50_c1-5ba5e060.pth"),
    _recipe("resnet50.c2_in1k", "timm (C2)", "resnet50_c2-d01e05b2.pth"),
    _recipe("resnet50.d_in1k", "timm (D)", "resnet50_d-f39db8af.pth"),
    Entry(
        *("tv2_resnet50", "torchvision (V2)", "training_recipes"),
        ("resnet50-11ad3fa6.pth",),
        where=_VISION,
    ),
)

# Of its appendix.
TRANSFORMERS: tuple[Entry, ...] = (
    _vit(
        *("augreg_in1k", "AugReg"),
        "B_16-i1k-300ep-lr_0.001-aug_strong2-wd_0.1-do_0.1-sd_0.1--"
        "imagenet2012-steps_20k-lr_0.01-res_224.npz",
        where=_VIT,
    ),
    _vit(
        *("mae_in1k", "MAE", "mae_finetuned_vit_base.pth"),
        where=_META + "mae/finetune/",
    ),
    _vit(
        *("dino_in1k", "DINO", "dino_vitbase16_pretrain.pth", IMAGENET),
        heads=("vit_base_patch16_224.dino_in1k.head.pth.tar",),  # There without a name.
        where="https://huggingface.co/paulgavrikov/in1k_head_for_vit_base_patch16_224.dino",
    ),
    _vit(
        *("torchvision_deit", "DeiT", "vit_b_16-c867db91.pth", IMAGENET), where=_VISION
    ),
    # Also the name of networks of other classes, and of images of 384 pixels.
    _vit(
        *("sam_in1k", "SAM", "ViT-B_16.npz"),
        where=_VIT,
        needs={"grid": 14, "classes": 1000},
    ),
)

ZOO: Mapping[str, Entry] = types.MappingProxyType(
    {entry.id: entry for entry in (*STUDY, *TRANSFORMERS)}
)


def find(path: str | os.PathLike) -> Entry | None:
    """The entry of a file: by a published name, by its identifier, or by its folder's.

    None where it is none of these, or the linear layer of one.
    """
    path = pathlib.Path(path)
    for entry in ZOO.values():
        named = path.name in entry.files
        own = path.name in (f"{entry.id}{suffix}" for suffix in _ENDS)
        folder = path.name in _PLAIN and path.absolute().parent.name == entry.id
        if named or own or folder:
            return entry
    return None


def is_head(path: str | os.PathLike) -> bool:
    """Whether a file has the name of the linear layer of some entry."""
    name = pathlib.Path(path).name
    return any(name in entry.heads for entry in ZOO.values())
