"""The node agent process: carries out what the control plane asks on one machine."""
