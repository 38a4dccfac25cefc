"""The system level: streams of inferences of many networks that share the devices and the DRAM of a SoC."""
