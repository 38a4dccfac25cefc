"""`python -m npusim.calibration FIT`: a fit behind the shipped data sheets."""

import sys

from npusim.calibration.fits import main

sys.exit(main())
