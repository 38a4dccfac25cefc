"""`python -m npusim.calibrate FIT`: a fit behind the shipped data sheets."""

import sys

from npusim.calibrate.fits import main

sys.exit(main())
