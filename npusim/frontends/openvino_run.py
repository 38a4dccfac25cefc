"""An `openvino.Model` run on the CPU device as it stands, and saved as a file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from npusim.errors import FileError
from npusim.files import refuse_unwritable
from npusim.frontends.openvino_ir import input_name, openvino

_AS_IT_STANDS = {
    "INFERENCE_PRECISION_HINT": "f32",  # the plug-in would take bf16 where the processor has it
    "INFERENCE_NUM_THREADS": 1,
    # The plug-in would move the rounding to where its own integer kernels like it: SAGE-max's behind the
    # -1e4 of its mask, which costs 3 % of the answers.
    "LP_TRANSFORMS_MODE": False,
}


def run_model(
    model: Any, inputs: Mapping[str, npt.NDArray[Any]], *, defaults: bool = False
) -> list[npt.NDArray[Any]]:
    """Run a model on the CPU device.

    Parameters
    ----------
    model : openvino.Model
    inputs : mapping of str to ndarray
        A value for each input, by name; brought to the input's format.
    defaults : bool
        Whether OpenVINO's default settings hold: the plug-in chooses formats and moves roundings. Otherwise
        everything is computed in fp32, with the roundings where the model has them.

    Returns
    -------
    list of ndarray
        One for each result.
    """
    compiled = openvino().Core().compile_model(model, "CPU", {} if defaults else _AS_IT_STANDS)
    feed = [
        np.ascontiguousarray(inputs[input_name(port)], dtype=port.get_element_type().to_dtype())
        for port in model.inputs
    ]
    found = compiled(feed)
    return [np.array(found[port]) for port in compiled.outputs]


def refuse_target(file: Path) -> None:
    """Refuse a file that no model can be saved to, before the work for it begins.

    Raises
    ------
    FileError
        Where its name does not end in .xml, or it cannot be written.
    """
    if file.suffix != ".xml":
        raise FileError(str(file), "does not end in .xml", "name the file model.xml or the like")
    refuse_unwritable(file)


def run_saved(model: Any, inputs: Mapping[str, npt.NDArray[Any]], *, half: bool) -> list[npt.NDArray[Any]]:
    """Run the file that a model would be saved as, as a user does: with OpenVINO's default settings."""
    with tempfile.TemporaryDirectory(prefix="npusim-") as folder:
        file = Path(folder) / "model.xml"
        save_model(model, file, half=half)
        return run_model(openvino().Core().read_model(file), inputs, defaults=True)


def save_model(model: Any, file: Path, *, half: bool) -> None:
    """Save a model as `.xml` and `.bin`; a reader sees the old pair or the new one, never half a file.

    Parameters
    ----------
    half : bool
        Whether weights are stored in fp16.

    Raises
    ------
    FileError
        Where it cannot be written, for example because the disk is full.
    """
    try:
        with tempfile.TemporaryDirectory(dir=file.parent, prefix=f".{file.stem}-") as folder:
            fresh = Path(folder) / file.name
            openvino().save_model(model, fresh, compress_to_fp16=half)
            os.replace(fresh.with_suffix(".bin"), file.with_suffix(".bin"))
            os.replace(fresh, file)
    except (OSError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[-1]
        raise FileError(str(file), f"cannot be written ({reason})", "give it another place") from None
