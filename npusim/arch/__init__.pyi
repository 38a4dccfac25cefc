"""The public names with their types; `__init__.py` imports each on first use."""

from npusim.arch.device import Cpu as Cpu
from npusim.arch.device import Gpu as Gpu
from npusim.arch.dpu import Dpu as Dpu
from npusim.arch.dsp import DspGeneration as DspGeneration
from npusim.arch.dsp import DspKernel as DspKernel
from npusim.arch.loading import load_soc as load_soc
from npusim.arch.loading import sheet_text as sheet_text
from npusim.arch.loading import soc_file as soc_file
from npusim.arch.loading import soc_names as soc_names
from npusim.arch.loading import with_overrides as with_overrides
from npusim.arch.npu import Accelerator as Accelerator
from npusim.arch.npu import Npu as Npu
from npusim.arch.soc import Calibration as Calibration
from npusim.arch.soc import Soc as Soc
from npusim.arch.soc import outer_levels as outer_levels
