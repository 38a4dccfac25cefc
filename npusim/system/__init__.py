"""The system level: streams of inferences that share the devices and the DRAM of a SoC."""
