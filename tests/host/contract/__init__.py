"""What every implementation of the ports of a node promises."""
